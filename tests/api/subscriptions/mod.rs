//! `/subscriptions`.

mod addresses;
mod check;

mod create;
mod delete;
mod get;
mod if_match;
mod list;
mod refusals;
mod rotate_secret;
mod test;
mod update;

use serde_json::Value;

use crate::support::{App, Options, Reply};

/// A URL to which nothing is ever sent.
const NOWHERE: &str = "https://shop.example/hook";

async fn with_flags(flags: &[&str]) -> App {
    App::start_with(Options { flags: flags.iter().map(|flag| (*flag).to_owned()).collect(), ..Options::default() })
        .await
}

fn path_of(subscription: &Value) -> String {
    format!("/subscriptions/{}", subscription["id"])
}

async fn update(app: &App, subscription: &Value, fields: Value) -> Reply {
    app.patch(&path_of(subscription), &fields).await
}

fn secret_of(view: &Value) -> String {
    view["secret"].as_str().expect("a secret").to_owned()
}
