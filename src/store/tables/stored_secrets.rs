//! All places where secrets are stored, for reports about their keys and for the rotation of keys.

use std::fmt;

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Integer, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::NamespaceId;
use crate::error::Error;
use crate::store::connection::connect::open;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;

/// Limits of the connection that rotates keys. A row that is not granted in time is left for the next pass.
const SETUP: &str = "SET lock_timeout = '2s'; SET statement_timeout = '60s'";

/// Opens a connection for the rotation of keys.
pub(crate) async fn connect_to_rotate(url: &str) -> Result<AsyncPgConnection, Error> {
    Ok(open(url, SETUP).await?.connection)
}

/// A table that holds secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SecretTable {
    /// The secrets that requests are signed with.
    Secrets,
    /// The settings of subscriptions, with header values.
    Subscriptions,
    /// The copies of such settings in dead letters.
    DeadLetters,
    /// The secrets that sources share with their senders.
    SourceSecrets,
    /// The tokens in the URLs of sources.
    SourceTokens,
}

impl SecretTable {
    /// All tables. Dead letters come last: they are copies of the others.
    pub(crate) const ALL: [SecretTable; 5] = [
        SecretTable::SourceSecrets,
        SecretTable::SourceTokens,
        SecretTable::Secrets,
        SecretTable::Subscriptions,
        SecretTable::DeadLetters,
    ];
}

impl fmt::Display for SecretTable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            SecretTable::Secrets => "webhook secrets",
            SecretTable::Subscriptions => "header values of subscriptions",
            SecretTable::DeadLetters => "header values in dead letters",
            SecretTable::SourceSecrets => "secrets of sources",
            SecretTable::SourceTokens => "tokens of sources",
        })
    }
}

/// A row of a table that holds secrets.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct SecretRow {
    #[diesel(sql_type = Integer)]
    pub namespace_id: NamespaceId,
    /// The id of the subscription or of the source that it belongs to.
    #[diesel(sql_type = BigInt)]
    pub owner_id: i64,
    /// The id of the row.
    #[diesel(sql_type = BigInt)]
    pub id: i64,
    /// The secret, or settings as JSON. `None` if the settings have no headers.
    #[diesel(sql_type = Nullable<Text>)]
    pub text: Option<String>,
}

/// Returns the next `limit` rows behind `after`, or the first ones.
pub(crate) async fn read_secret_rows(
    conn: &mut AsyncPgConnection,
    table: SecretTable,
    after: Option<&SecretRow>,
    limit: i64,
) -> QueryResult<Vec<SecretRow>> {
    let (namespace, owner_id, id) = after.map_or((i32::MIN, 0, 0), |row| (row.namespace_id.0, row.owner_id, row.id));
    let query = match table {
        SecretTable::Secrets => statement!("read_secrets"),
        SecretTable::SourceSecrets => statement!("read_source_secrets"),
        SecretTable::Subscriptions => statement!("read_specs"),
        SecretTable::DeadLetters => statement!("read_dead_letter_specs"),
        SecretTable::SourceTokens => statement!("read_source_tokens"),
    };
    let query = query.query().bind::<Integer, _>(namespace);
    // An owner has several secrets, and is itself part of the key of their table.
    if matches!(table, SecretTable::Secrets | SecretTable::SourceSecrets) {
        let query = query.bind::<BigInt, _>(owner_id).bind::<BigInt, _>(id);
        return query.bind::<BigInt, _>(limit).load(conn).await;
    }
    query.bind::<BigInt, _>(id).bind::<BigInt, _>(limit).load(conn).await
}

/// A row with the text that is to replace its own.
#[derive(Debug, Clone)]
pub(crate) struct Replacement {
    pub row: SecretRow,
    pub old: String,
    pub new: String,
}

/// Replaces the texts of rows. Returns the number of those that were replaced: a row that was changed since it was
/// read keeps its text, and so does a dead letter that is in use.
pub(crate) async fn replace_secret_rows(
    conn: &mut AsyncPgConnection,
    table: SecretTable,
    replacements: &[Replacement],
) -> QueryResult<usize> {
    if table == SecretTable::DeadLetters {
        return replace_in_dead_letters(conn, replacements).await;
    }
    let mut replaced = 0;
    // One by one: a statement that waits for one row holds no other.
    for replacement in replacements {
        replaced += match table {
            SecretTable::Secrets | SecretTable::SourceSecrets => replace_secret_text(conn, table, replacement).await?,
            SecretTable::Subscriptions | SecretTable::SourceTokens | SecretTable::DeadLetters => {
                replace_text(conn, table, replacement).await?
            }
        };
    }
    Ok(replaced)
}

async fn replace_secret_text(
    conn: &mut AsyncPgConnection,
    table: SecretTable,
    Replacement { row, old, new }: &Replacement,
) -> QueryResult<usize> {
    let of_source = table == SecretTable::SourceSecrets;
    let replace = if of_source { statement!("replace_source_secret_text") } else { statement!("replace_secret_text") };
    replace
        .query()
        .bind::<Integer, _>(row.namespace_id)
        .bind::<BigInt, _>(row.owner_id)
        .bind::<BigInt, _>(row.id)
        .bind::<Text, _>(old)
        .bind::<Text, _>(new)
        .execute(conn)
        .await
}

async fn replace_text(
    conn: &mut AsyncPgConnection,
    table: SecretTable,
    Replacement { row, old, new }: &Replacement,
) -> QueryResult<usize> {
    let of_source = table == SecretTable::SourceTokens;
    let replace = if of_source { statement!("replace_source_token_text") } else { statement!("replace_spec_text") };
    let query = replace.query().bind::<Integer, _>(row.namespace_id);
    query.bind::<BigInt, _>(row.id).bind::<Text, _>(old).bind::<Text, _>(new).execute(conn).await
}

async fn replace_in_dead_letters(conn: &mut AsyncPgConnection, replacements: &[Replacement]) -> QueryResult<usize> {
    let column = |text: fn(&Replacement) -> &str| replacements.iter().map(text).collect::<Vec<_>>();
    statement!("replace_dead_letter_specs")
        .query()
        .bind::<Array<Integer>, _>(replacements.iter().map(|each| each.row.namespace_id).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(replacements.iter().map(|each| each.row.id).collect::<Vec<_>>())
        .bind::<Array<Text>, _>(column(|each| &each.old))
        .bind::<Array<Text>, _>(column(|each| &each.new))
        .execute(conn)
        .await
}

/// A key, with the number of values that are encrypted with it.
#[derive(Debug, Clone, QueryableByName)]
pub(crate) struct KeyCount {
    /// The id of the key. `None` for values that are not encrypted.
    #[diesel(sql_type = Nullable<Text>)]
    pub key_id: Option<String>,
    #[diesel(sql_type = BigInt)]
    pub values: i64,
}

/// Returns the keys of the secrets of subscriptions and sources, without dead letters.
pub(crate) async fn count_secret_keys(conn: &mut AsyncPgConnection) -> QueryResult<Vec<KeyCount>> {
    statement!("count_secret_keys").query().load(conn).await
}

/// The numbers of the transactions that are running.
#[derive(Debug, Clone, Copy, QueryableByName)]
pub(crate) struct TransactionRange {
    /// All transactions with a lower number have ended.
    #[diesel(sql_type = BigInt)]
    pub oldest: i64,
    /// The number of the next transaction that begins.
    #[diesel(sql_type = BigInt)]
    pub next: i64,
}

pub(crate) async fn read_transaction_range(conn: &mut AsyncPgConnection) -> QueryResult<TransactionRange> {
    statement!("read_transaction_range").query().load_one(conn).await
}
