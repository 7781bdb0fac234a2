//! `waybill keys`: makes, lists, changes, revokes and rotates API keys.
//!
//! A new key goes to standard output, alone on its line, and what is said about it to standard error, so that
//! `export WAYBILL_KEY=$(waybill keys create …)` works.

use chrono::{DateTime, Utc};
use diesel_async::AsyncPgConnection;
use serde_json::{Map, Value, json};

use super::client::{ApiClient, Query};
use super::error::CliError;
use super::output::{Cell, Column, Output, note, word, words};
use crate::config::{
    CreateKeyArgs, DatabaseArgs, KeysArgs, KeysVerb, ListKeysArgs, RevokeKeyArgs, RotateKeyArgs, UpdateKeyArgs,
};
use crate::domain::api_key::{ApiKey, KeyScope, KeyScopes, TagPatterns, check_name};
use crate::domain::ids::{KeyId, NamespaceId};
use crate::domain::limits;
use crate::domain::publish_limits::MAX_RATE;
use crate::domain::scope::Scope;
use crate::domain::timestamp;
use crate::engine::keys::key_created;
use crate::error::Error;
use crate::logging;
use crate::startup::{data_dir_without_database, reach_database};
use crate::store::connection::database::{Database, STATEMENT_LIMIT};
use crate::store::connection::migrate::migrate;
use crate::store::connection::transactions::{begin, commit, roll_back};
use crate::store::tables::api_keys::{NewKey, count_admin_keys, insert_api_key, renew_key_generation};
use crate::store::tables::audit_log::record_audit;

/// The name that a key made by `--bootstrap` has as its maker.
const BOOTSTRAP: &str = "waybill keys create --bootstrap";

pub(crate) async fn run(args: KeysArgs) -> Result<(), CliError> {
    match args.verb {
        KeysVerb::Create(args) if args.bootstrap => bootstrap(args).await,
        KeysVerb::Create(args) => create(args).await,
        KeysVerb::List(args) => list(args).await,
        KeysVerb::Update(args) => update(args).await,
        KeysVerb::Revoke(args) => revoke(args).await,
        KeysVerb::Rotate(args) => rotate(args).await,
    }
}

async fn create(args: CreateKeyArgs) -> Result<(), CliError> {
    let mut body = json!({ "name": args.name, "scopes": args.scopes });
    if !args.tags.is_empty() {
        body["tag_patterns"] = json!(args.tags);
    }
    if let Some(expires_at) = &args.expires_at {
        body["expires_at"] = json!(expires_at);
    }
    if let Some(rate) = args.publishes_per_second {
        body["publishes_per_second"] = json!(rate);
    }
    if let Some(burst) = args.publish_burst {
        body["publish_burst"] = json!(burst);
    }
    let made = ApiClient::new(&args.server)?.post("/keys", Some(&body)).await?;
    show_new(&Output::new(&args.server), &made.value)
}

/// Makes a key without a server. Whoever can write to the database needs no key.
async fn bootstrap(args: CreateKeyArgs) -> Result<(), CliError> {
    logging::init(&args.logging);
    let new = read_key(&args, Utc::now()).map_err(CliError::Failed)?;
    if !args.init {
        refuse_new_database(&args.database)?;
    }
    let (url, cluster) = reach_database(&args.database).await?;
    migrate(&url).await?;
    let key = ApiKey::generate().map_err(Error::Internal)?;
    let database = Database::new(&url, 1)?;
    let scope = Scope { actor: Some(BOOTSTRAP.into()), ..Scope::new(NamespaceId::DEFAULT, None) };
    let stored = store_key(&database, &scope, &new, &key, args.if_none).await;
    database.close();
    // At once: whoever is killed while PostgreSQL stops would leave a key that nobody knows.
    let shown = match stored {
        Ok(Some(id)) => {
            let made = json!({ "id": id.0, "name": new.name, "scopes": new.scopes.names(), "key": key.as_text() });
            show_new(&Output::new(&args.server), &made)
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    if let Some(cluster) = cluster {
        let _ = tokio::task::spawn_blocking(move || cluster.stop()).await;
    }
    shown
}

/// Returns an error if the data directory has no database: a key in a new one would open no server.
fn refuse_new_database(args: &DatabaseArgs) -> Result<(), CliError> {
    let Some(data_dir) = data_dir_without_database(args)? else { return Ok(()) };
    let data_dir = data_dir.display();
    Err(CliError::Failed(format!(
        "there is no database in {data_dir}, so no key was made. Name the data directory of the server with --data-dir \
         or WAYBILL_DATA_DIR. To create a database there, and its first key in it, run\n\n    {BOOTSTRAP} --init \
         --data-dir '{data_dir}'\n"
    )))
}

/// Stores a key and its audit entry: both or none. Returns `None` if `if_none` and there is a key.
async fn store_key(
    database: &Database,
    scope: &Scope,
    new: &NewKey,
    key: &ApiKey,
    if_none: bool,
) -> Result<Option<KeyId>, CliError> {
    let mut conn = database.connection().await?;
    begin(&mut conn, STATEMENT_LIMIT).await?;
    let stored = insert_with_audit(&mut conn, scope, new, key, if_none).await;
    match &stored {
        Ok(_) => commit(&mut conn).await?,
        Err(_) => roll_back(&mut conn).await?,
    }
    stored
}

async fn insert_with_audit(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    new: &NewKey,
    key: &ApiKey,
    if_none: bool,
) -> Result<Option<KeyId>, CliError> {
    renew_key_generation(conn).await.map_err(Error::from)?;
    let admins = count_admin_keys(conn, scope).await.map_err(Error::from)?;
    if admins > 0 && if_none {
        return Ok(None);
    }
    if admins == 0 && !new.scopes.allow(KeyScope::Admin) {
        let why = "--scopes must include admin: from the first key on, only such a key can make others";
        return Err(CliError::Failed(why.to_owned()));
    }
    let id = insert_api_key(conn, scope, new, key, limits::API_KEYS).await.map_err(Error::from)?;
    let Some(id) = id else {
        let why = format!("a key named {:?} is in use already, or there are too many; choose another --name", new.name);
        return Err(CliError::Failed(why));
    };
    record_audit(conn, scope, &key_created(id, new)).await.map_err(Error::from)?;
    Ok(Some(id))
}

fn read_key(args: &CreateKeyArgs, now: DateTime<Utc>) -> Result<NewKey, String> {
    check_name(&args.name).map_err(|reason| format!("--name {reason}"))?;
    let scopes: Option<Vec<KeyScope>> = args.scopes.iter().map(|name| KeyScope::parse(name)).collect();
    let known = KeyScope::ALL.map(KeyScope::as_str).join(", ");
    let scopes = scopes.ok_or_else(|| format!("--scopes must be one or more of {known}"))?;
    let tags = (!args.tags.is_empty()).then(|| TagPatterns::parse(args.tags.iter().map(String::as_str)));
    let tag_patterns = tags.transpose().map_err(|reason| format!("--tags {reason}"))?;
    let expires_at = args.expires_at.as_deref().map(timestamp::parse).transpose();
    let expires_at = expires_at.map_err(|reason| format!("--expires-at {reason}"))?;
    if expires_at.is_some_and(|at| at <= now) {
        return Err("--expires-at must be in the future".to_owned());
    }
    let scopes = KeyScopes::of(scopes);
    if tag_patterns.is_some() && scopes.allow(KeyScope::Admin) {
        return Err("--tags must not be given with the scope admin, which no pattern limits".to_owned());
    }
    let created_by = Some(BOOTSTRAP.to_owned());
    Ok(NewKey {
        name: args.name.clone(),
        scopes,
        tag_patterns,
        expires_at,
        created_by,
        publishes_per_second: read_rate("--publishes-per-second", args.publishes_per_second)?,
        publish_burst: read_rate("--publish-burst", args.publish_burst)?,
    })
}

fn read_rate(flag: &str, rate: Option<u32>) -> Result<Option<u32>, String> {
    match rate {
        Some(rate) if !(1..=MAX_RATE).contains(&rate) => Err(format!("{flag} must be between 1 and {MAX_RATE}")),
        _ => Ok(rate),
    }
}

async fn list(args: ListKeysArgs) -> Result<(), CliError> {
    let output = Output::new(&args.server);
    let list = ApiClient::new(&args.server)?.list(&Query::new("/keys"), "keys", &args.pages).await?;
    output.list(&list, columns(), |key| row(&output, key))
}

async fn update(args: UpdateKeyArgs) -> Result<(), CliError> {
    let mut body = Map::new();
    for (name, number) in [("publishes_per_second", args.publishes_per_second), ("publish_burst", args.publish_burst)] {
        if let Some(number) = number {
            body.insert(name.to_owned(), json!(Some(number).filter(|number| *number > 0)));
        }
    }
    let updated = ApiClient::new(&args.server)?.patch(&format!("/keys/{}", args.id), &Value::Object(body)).await?;
    let output = Output::new(&args.server);
    output.answer(&updated, |key| {
        output.line(&format!("key {} ({}) may publish {}", args.id, word(&key["name"]), rate_text(key)))
    })
}

/// Returns how much may be published with a key, for people.
fn rate_text(key: &Value) -> String {
    match (key["publishes_per_second"].as_u64(), key["publish_burst"].as_u64()) {
        (None, _) => "as much as its namespace may".to_owned(),
        (Some(rate), None) => format!("{rate} events per second"),
        (Some(rate), Some(burst)) => format!("{rate} events per second, {burst} at once"),
    }
}

async fn revoke(args: RevokeKeyArgs) -> Result<(), CliError> {
    let revoked = ApiClient::new(&args.server)?.post(&format!("/keys/{}/revoke", args.id), None).await?;
    let output = Output::new(&args.server);
    output.answer(&revoked, |key| output.line(&format!("key {} ({}) is revoked", args.id, word(&key["name"]))))
}

async fn rotate(args: RotateKeyArgs) -> Result<(), CliError> {
    let body = json!({ "overlap_seconds": args.overlap_seconds });
    let rotated = ApiClient::new(&args.server)?.post(&format!("/keys/{}/rotate", args.id), Some(&body)).await?;
    show_new(&Output::new(&args.server), &rotated.value)
}

/// Prints a key that was just made.
fn show_new(output: &Output, key: &Value) -> Result<(), CliError> {
    if output.json {
        return output.line(&key.to_string());
    }
    output.line(&word(&key["key"]))?;
    let (id, name, scopes) = (word(&key["id"]), word(&key["name"]), words(&key["scopes"]));
    note(&format!("key {id} ({name}), scopes {scopes}; it is not shown again"));
    Ok(())
}

fn columns() -> Vec<Column> {
    vec![
        Column::number("ID"),
        Column::flexible("NAME", 8),
        Column::new("KEY"),
        Column::flexible("SCOPES", 8),
        Column::flexible("TAGS", 6),
        Column::new("STATE"),
        Column::new("LAST USED"),
    ]
}

fn row(output: &Output, key: &Value) -> Vec<Cell> {
    let state = match (&key["revoked_at"], &key["expires_at"]) {
        (Value::Null, Value::Null) => Cell::state("in use"),
        (Value::Null, at) => Cell::new(format!("until {}", word(at).chars().take(10).collect::<String>())),
        (at, _) => Cell::new(format!("revoked {}", output.ago(at))),
    };
    let tags = if key["tag_patterns"].is_null() { "all".to_owned() } else { words(&key["tag_patterns"]) };
    let last_used = if key["last_used_at"].is_null() { "never".to_owned() } else { output.ago(&key["last_used_at"]) };
    let prefix = format!("{}…", word(&key["prefix"]));
    vec![
        word(&key["id"]).into(),
        word(&key["name"]).into(),
        prefix.into(),
        words(&key["scopes"]).into(),
        tags.into(),
        state,
        last_used.into(),
    ]
}
