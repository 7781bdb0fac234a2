//! What a page of the audit log costs, in buffers: beside 300,000 entries, and however few match.

use waybill::domain::audit::AuditAction;
use waybill::domain::ids::NamespaceId;
use waybill::domain::scope::Scope;
use waybill::store::lists::audit_entries::{AuditFilter, list_audit_entries};
use waybill::store::lists::pages::Page;

use crate::support::{App, Options, database};

/// The most that a page of 20 entries may cost.
const MOST: i64 = 60;

/// The most that a page may cost which searches through `scan` entries.
const MOST_OF_SEARCH: i64 = 600;

/// Entries of one actor, with three of another one and of another action among them; and a small namespace.
const ENTRIES: &str = "
    INSERT INTO waybill.audit_log (id, created_at, action, actor, address, detail)
    SELECT n, now() - (300000 - n) * interval '1 minute',
           CASE WHEN n % 100000 = 50000 THEN 'key.revoked' ELSE 'calls.refused' END,
           CASE WHEN n % 100000 = 50000 THEN 'ann' ELSE 'robot' END, '192.0.2.7', '{\"reason\": \"unauthenticated\", \"calls\": 17}'
    FROM generate_series(1, 300000) n;
    INSERT INTO waybill.audit_log (namespace_id, id, created_at, action, actor, detail)
    SELECT 2, 400000 + n, now(), 'calls.refused', 'robot', '{}' FROM generate_series(1, 3) n";

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_the_audit_log_costs_the_same_however_long_it_is() {
    let flags = ["--check-rules=false", "--dispatch=false"].map(str::to_owned).to_vec();
    let app = App::start_with(Options { fixed_clock: true, flags, ..Options::default() }).await;
    database::execute(&app.url, ENTRIES).await;
    database::execute(&app.url, "VACUUM ANALYZE waybill.audit_log").await;
    let any = AuditFilter::default;
    let ann = || Some("ann".to_owned());
    let cases = [
        ("all", 1, any(), 20, MOST),
        ("a rare action", 1, AuditFilter { action: Some(AuditAction::KeyRevoked), ..any() }, 3, MOST),
        ("a common action", 1, AuditFilter { action: Some(AuditAction::CallsRefused), ..any() }, 20, MOST),
        ("a rare actor", 1, AuditFilter { actor: ann(), ..any() }, 3, MOST),
        ("an unknown actor", 1, AuditFilter { actor: Some("nobody".into()), ..any() }, 0, MOST),
        ("both", 1, AuditFilter { actor: ann(), action: Some(AuditAction::KeyRevoked), ..any() }, 3, MOST),
        ("the future", 1, AuditFilter { since: Some(chrono::Utc::now()), ..any() }, 0, MOST_OF_SEARCH),
        ("a small namespace", 2, any(), 3, MOST),
        ("its action", 2, AuditFilter { action: Some(AuditAction::CallsRefused), ..any() }, 3, MOST),
    ];
    for (name, namespace, filter, wanted, most) in cases {
        for descending in [false, true] {
            let (scope, page) =
                (Scope::new(NamespaceId(namespace), None), Page { descending, after: None, limit: 20, scan: 10_000 });
            let listing = app.buffers_of_repeated(async |conn| list_audit_entries(conn, &scope, &filter, page).await);
            let ((rows, _), buffers) = listing.await;
            println!("{name}, descending: {descending}: {buffers} buffers for {} entries", rows.len());
            assert_eq!(rows.len(), wanted, "{name}");
            assert!(buffers <= most, "{name}, descending: {descending}: {buffers} buffers");
        }
    }
}
