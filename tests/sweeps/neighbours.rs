//! Ending a delivery changes other rows, too: the next of its key, and the roll-up row of its
//! event. If one of these is locked, the delivery is skipped like a locked one.

use serde_json::json;

use super::{Kind, UNTIL_OVERDUE, job, lock_rows};
use crate::support::{App, Options, database, ledger};

async fn fixed(flags: &[&str]) -> App {
    let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
    App::start_with(Options { flags, fixed_clock: true, ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_successor_in_its_key_does_not_delay_a_sweep() {
    for kind in [Kind::Expired, Kind::LostLeases] {
        let app = fixed(&["--poison-after=1"]).await;
        let keyed = |_| json!({"title": "a job", "tags": "a", "ordering_key": "k"});
        kind.prepare(&app, 1, keyed).await;
        let next = app.publish(keyed(0)).await;
        app.advance(1);
        kind.prepare(&app, 3, job).await;
        app.advance(UNTIL_OVERDUE);
        let held = lock_rows(&app, &[next]).await;
        assert_eq!(kind.run(&app).await, 3, "{kind:?}");
        held.unlock().await;
        app.advance(1);
        assert_eq!(kind.run(&app).await, 1, "{kind:?}");
        assert_eq!(app.claim("a", "w:1").await.expect("the next of the key")["id"], next);
        ledger::check(&app).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pushes_of_an_event_whose_roll_up_row_is_locked_do_not_hide_those_behind_them() {
    const PUSHES: usize = 510;
    let app = fixed(&["--dispatch=false"]).await;
    app.subscribe("http://127.0.0.1:9/", json!({"event_types": ["t"]})).await;
    let copies = format!(
        "INSERT INTO waybill.subscriptions (url, spec) \
         SELECT url, spec FROM waybill.subscriptions CROSS JOIN generate_series(2, {PUSHES}); \
         UPDATE waybill.subscription_catalog SET generation = generation + 1"
    );
    database::execute(&app.url, &copies).await;
    let expires_at = json!(app.now() + chrono::TimeDelta::seconds(UNTIL_OVERDUE));
    let pushed = app.publish(json!({"event_type": "t", "expires_at": expires_at})).await;
    app.advance(1);
    Kind::Expired.prepare(&app, 3, job).await;
    app.advance(UNTIL_OVERDUE);
    let held = lock_rows(&app, &[pushed]).await;
    assert_eq!(app.expire().await, 3);
    held.unlock().await;
    assert_eq!(app.expire().await, PUSHES);
    assert_eq!(app.status(pushed).await, "FAILED");
    ledger::check(&app).await;
}
