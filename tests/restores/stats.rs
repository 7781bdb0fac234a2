//! Stats after a restore: what the restored database has stays, and what is done from then on is added.

use waybill::background::stats_recorder;

use super::noticing::simulate_restore;
use crate::support::{App, database};

async fn published(app: &App) -> i64 {
    let history = app.get("/stats/history?metric=published&step=1h&from=2h").await.expect(200).json();
    let values = history["series"]["published"].as_array().expect("values").clone();
    values.iter().map(|value| value.as_i64().expect("a number")).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_of_a_restored_database_stay_and_new_ones_are_added() {
    let app = App::with_fixed_clock().await;
    let publish_and_record = async || {
        app.publish_tagged("a").await;
        stats_recorder::run_once(app.engine()).await.expect("a round");
    };
    publish_and_record().await;
    database::execute(&app.url, "CREATE TABLE backup AS SELECT * FROM waybill.stats_hours").await;
    publish_and_record().await;
    app.publish_tagged("a").await;
    let restore = "TRUNCATE waybill.stats_hours; INSERT INTO waybill.stats_hours SELECT * FROM backup";
    database::execute(&app.url, restore).await;
    simulate_restore(&app).await;
    assert_eq!(published(&app).await, 1);
    publish_and_record().await;
    publish_and_record().await;
    assert_eq!(published(&app).await, 3);
    assert_eq!(app.count("SELECT count(DISTINCT server) FROM waybill.stats_hours").await, 2);
}
