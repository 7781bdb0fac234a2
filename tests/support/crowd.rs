//! Many subscriptions at once. Each `POST /subscriptions` makes the server reload all
//! subscriptions, so all but the first are copied inside the database.

use serde_json::Value;

use super::{App, database};

impl App {
    /// Subscribes `count` receivers to the same events, each with its own URL below `url`.
    pub(crate) async fn subscribe_many(&self, count: usize, url: &str, fields: Value) {
        let first = self.subscribe(&format!("{url}/1"), fields).await;
        let id = &first["id"];
        let sql = format!(
            "WITH copies AS (INSERT INTO waybill.subscriptions (url, spec) \
                 SELECT '{url}/' || n, replace(s.spec::text, '{url}/1', '{url}/' || n)::json \
                 FROM waybill.subscriptions s, generate_series(2, {count}) n WHERE s.id = {id} RETURNING id) \
             INSERT INTO waybill.subscription_secrets (subscription_id, secret) \
                 SELECT c.id, k.secret FROM copies c, waybill.subscription_secrets k WHERE k.subscription_id = {id}; \
             UPDATE waybill.subscription_catalog SET generation = generation + 1"
        );
        database::execute(&self.url, &sql).await;
    }
}
