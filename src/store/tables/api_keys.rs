//! API keys, their secrets, and the catalog by which servers notice changes.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use diesel::QueryResult;
use diesel::prelude::{ExpressionMethods, OptionalExtension, QueryDsl, QueryableByName};
use diesel::sql_types::{Array, BigInt, Binary, Bool, Double, Integer, Nullable, Text, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::api_key::{ApiKey, KeyHash, KeyScopes, TagPatterns};
use crate::domain::ids::{KeyId, NamespaceId};
use crate::domain::publish_limits::PublishRate;
use crate::domain::scope::Scope;
use crate::store::connection::cached::CachedExt;
use crate::store::connection::whole_result::LoadOne;
use crate::store::lists::pages::{IdRow, Page};
use crate::store::statement::statement;
use crate::store::tables::schema::api_keys;

/// The payload of the notification that keys have changed. The statements that change keys send it.
pub(crate) const KEYS_NOTICE: &str = "keys";

/// A key to store.
#[derive(Debug, Clone)]
pub struct NewKey {
    pub name: String,
    pub scopes: KeyScopes,
    /// The tags that it may publish to and work on. `None` means all.
    pub tag_patterns: Option<TagPatterns>,
    pub expires_at: Option<DateTime<Utc>>,
    /// The name of the key that made it.
    pub created_by: Option<String>,
    /// How many events may be published with it per second, and at once.
    pub publishes_per_second: Option<u32>,
    pub publish_burst: Option<u32>,
}

/// Stores a key and its secret. Returns its id, or `None` if the name is in use or there are `max_keys` keys.
pub(crate) async fn insert_api_key(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    new: &NewKey,
    secret: &ApiKey,
    max_keys: i64,
) -> QueryResult<Option<KeyId>> {
    let row: Option<IdRow> = statement!("insert_api_key")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<Text, _>(&new.name)
        .bind::<Array<Text>, _>(new.scopes.names())
        .bind::<Nullable<Array<Text>>, _>(new.tag_patterns.as_ref().map(TagPatterns::as_slice))
        .bind::<Nullable<Timestamptz>, _>(new.expires_at)
        .bind::<Nullable<Text>, _>(new.created_by.as_deref())
        .bind::<Nullable<Integer>, _>(new.publishes_per_second.map(u32::cast_signed))
        .bind::<Nullable<Integer>, _>(new.publish_burst.map(u32::cast_signed))
        .bind::<Binary, _>(secret.hash().0.as_slice())
        .bind::<Text, _>(secret.shown())
        .bind::<BigInt, _>(max_keys)
        .load_one(conn)
        .await
        .optional()?;
    Ok(row.map(|row| KeyId(row.id)))
}

/// A secret and the key that it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct KeyRow {
    pub hash: KeyHash,
    pub id: KeyId,
    pub namespace_id: NamespaceId,
    pub name: String,
    pub scopes: KeyScopes,
    pub tag_patterns: Option<TagPatterns>,
    /// When the key or the secret ends, whichever is first.
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
    /// How much may be published with it. `None` means as much as its namespace may.
    pub publish_rate: Option<PublishRate>,
}

/// What one statement has read of the keys.
#[derive(Debug, Clone)]
pub(crate) struct LoadedKeys {
    pub generation: i64,
    /// Whether requests must carry a key.
    pub is_required: bool,
    pub keys: Vec<KeyRow>,
}

#[derive(QueryableByName)]
struct LoadedRow {
    #[diesel(sql_type = BigInt)]
    generation: i64,
    #[diesel(sql_type = Bool)]
    is_required: bool,
    #[diesel(sql_type = Nullable<Binary>)]
    hash: Option<Vec<u8>>,
    #[diesel(sql_type = Nullable<BigInt>)]
    id: Option<KeyId>,
    #[diesel(sql_type = Nullable<Integer>)]
    namespace_id: Option<NamespaceId>,
    #[diesel(sql_type = Nullable<Text>)]
    name: Option<String>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    scopes: Option<Vec<String>>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    tag_patterns: Option<Vec<String>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    expires_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    revoked_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Integer>)]
    publishes_per_second: Option<i32>,
    #[diesel(sql_type = Nullable<Integer>)]
    publish_burst: Option<i32>,
}

impl LoadedRow {
    fn key(self) -> Option<KeyRow> {
        Some(KeyRow {
            hash: KeyHash(self.hash?.try_into().ok()?),
            id: self.id?,
            namespace_id: self.namespace_id?,
            name: self.name?,
            scopes: KeyScopes::of_known_names(self.scopes?.iter().map(String::as_str)),
            tag_patterns: TagPatterns::stored(self.tag_patterns),
            expires_at: self.expires_at,
            revoked_at: self.revoked_at,
            publish_rate: PublishRate::of(unsigned(self.publishes_per_second), unsigned(self.publish_burst)),
        })
    }
}

fn unsigned(number: Option<i32>) -> Option<u32> {
    number.and_then(|number| u32::try_from(number).ok())
}

/// Returns the keys that have one of these secrets, and the state of the catalog.
pub(crate) async fn load_keys(conn: &mut AsyncPgConnection, hashes: &[KeyHash]) -> QueryResult<LoadedKeys> {
    let hashes: Vec<&[u8]> = hashes.iter().map(|hash| hash.0.as_slice()).collect();
    let rows: Vec<LoadedRow> =
        statement!("load_keys").query().bind::<Array<Binary>, _>(hashes).cached().load(conn).await?;
    let first = rows.as_slice().first().ok_or(diesel::result::Error::NotFound)?;
    let (generation, is_required) = (first.generation, first.is_required);
    Ok(LoadedKeys { generation, is_required, keys: rows.into_iter().filter_map(LoadedRow::key).collect() })
}

#[derive(QueryableByName)]
struct Generation {
    #[diesel(sql_type = BigInt)]
    generation: i64,
}

/// Returns the present generation of the catalog.
pub(crate) async fn load_key_generation(conn: &mut AsyncPgConnection) -> QueryResult<i64> {
    let row: Generation = statement!("load_key_generation").query().cached().load_one(conn).await?;
    Ok(row.generation)
}

/// Gives the catalog a new generation, and tells the servers at the commit. Changes of keys take turns from here on.
pub(crate) async fn renew_key_generation(conn: &mut AsyncPgConnection) -> QueryResult<()> {
    statement!("renew_key_generation").query().execute(conn).await.map(drop)
}

/// A key, for people. It has no secret.
#[derive(Debug, Clone, QueryableByName)]
pub struct ListedKey {
    #[diesel(sql_type = BigInt)]
    pub id: KeyId,
    #[diesel(sql_type = Text)]
    pub namespace: String,
    #[diesel(sql_type = Text)]
    pub name: String,
    /// The first characters of the newest secret.
    #[diesel(sql_type = Text)]
    pub prefix: String,
    #[diesel(sql_type = Array<Text>)]
    pub scopes: Vec<String>,
    #[diesel(sql_type = Nullable<Array<Text>>)]
    pub tag_patterns: Option<Vec<String>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub expires_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub revoked_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    pub last_used_at: Option<DateTime<Utc>>,
    #[diesel(sql_type = Timestamptz)]
    pub created_at: DateTime<Utc>,
    #[diesel(sql_type = Nullable<Text>)]
    pub created_by: Option<String>,
    /// The number of secrets that are good: more than one during a rotation.
    #[diesel(sql_type = BigInt)]
    pub secrets: i64,
    /// The number of browsers in which somebody has logged in with the key.
    #[diesel(sql_type = BigInt)]
    pub sessions: i64,
    #[diesel(sql_type = Nullable<Integer>)]
    pub publishes_per_second: Option<i32>,
    #[diesel(sql_type = Nullable<Integer>)]
    pub publish_burst: Option<i32>,
}

impl ListedKey {
    /// Returns how many events may be published with the key per second, and at once.
    pub fn rate(&self) -> (Option<u32>, Option<u32>) {
        (unsigned(self.publishes_per_second), unsigned(self.publish_burst))
    }

    /// Returns whether the key is neither revoked nor expired.
    pub fn is_in_use(&self, now: DateTime<Utc>) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| at > now)
    }
}

/// Returns a page of keys in the order of ids.
pub(crate) async fn list_keys(conn: &mut AsyncPgConnection, scope: &Scope, page: Page) -> QueryResult<Vec<ListedKey>> {
    let ids = match (page.after, page.descending) {
        (Some(after), true) => 0..=after - 1,
        (Some(after), false) => after + 1..=i64::MAX,
        (None, _) => 0..=i64::MAX,
    };
    find_keys(conn, scope, ids, page).await
}

/// Returns a key, or `None` if there is none with this id.
pub(crate) async fn get_key(conn: &mut AsyncPgConnection, scope: &Scope, id: KeyId) -> QueryResult<Option<ListedKey>> {
    let page = Page { descending: false, after: None, limit: 1, scan: 1 };
    Ok(find_keys(conn, scope, id.0..=id.0, page).await?.pop())
}

async fn find_keys(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    ids: RangeInclusive<i64>,
    page: Page,
) -> QueryResult<Vec<ListedKey>> {
    statement!("list_keys")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<BigInt, _>(*ids.start())
        .bind::<BigInt, _>(*ids.end())
        .bind::<Bool, _>(page.descending)
        .bind::<BigInt, _>(page.limit)
        .load(conn)
        .await
}

/// Revokes a key.
pub(crate) async fn revoke_key(conn: &mut AsyncPgConnection, scope: &Scope, id: KeyId) -> QueryResult<()> {
    let query = statement!("revoke_key").query().bind::<Integer, _>(scope.namespace);
    query.bind::<Nullable<Timestamptz>, _>(scope.now).bind::<BigInt, _>(id).execute(conn).await.map(drop)
}

/// Sets how many events may be published with a key per second, and at once.
pub(crate) async fn update_key_rate(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: KeyId,
    (publishes_per_second, publish_burst): (Option<u32>, Option<u32>),
) -> QueryResult<()> {
    statement!("update_key_rate")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<BigInt, _>(id)
        .bind::<Nullable<Integer>, _>(publishes_per_second.map(u32::cast_signed))
        .bind::<Nullable<Integer>, _>(publish_burst.map(u32::cast_signed))
        .execute(conn)
        .await
        .map(drop)
}

/// The result of a statement that counts rows.
#[derive(QueryableByName)]
pub(crate) struct Count {
    #[diesel(sql_type = BigInt)]
    pub count: i64,
}

/// Returns the number of keys, of all namespaces, that may do everything and are in use.
pub(crate) async fn count_admin_keys(conn: &mut AsyncPgConnection, scope: &Scope) -> QueryResult<i64> {
    let query = statement!("count_admin_keys").query().bind::<Nullable<Timestamptz>, _>(scope.now);
    let row: Count = query.load_one(conn).await?;
    Ok(row.count)
}

/// Gives a key a new secret. Returns the number of secrets that were good before.
pub(crate) async fn replace_key_secret(
    conn: &mut AsyncPgConnection,
    scope: &Scope,
    id: KeyId,
    secret: &ApiKey,
    overlap_seconds: f64,
) -> QueryResult<i64> {
    let row: Count = statement!("replace_key_secret")
        .query()
        .bind::<Integer, _>(scope.namespace)
        .bind::<Nullable<Timestamptz>, _>(scope.now)
        .bind::<BigInt, _>(id)
        .bind::<Binary, _>(secret.hash().0.as_slice())
        .bind::<Text, _>(secret.shown())
        .bind::<Double, _>(overlap_seconds)
        .load_one(conn)
        .await?;
    Ok(row.count)
}

/// Records that keys were used.
pub(crate) async fn record_key_use(
    conn: &mut AsyncPgConnection,
    now: Option<DateTime<Utc>>,
    keys: &[(NamespaceId, KeyId)],
) -> QueryResult<()> {
    statement!("record_key_use")
        .query()
        .bind::<Nullable<Timestamptz>, _>(now)
        .bind::<Array<Integer>, _>(keys.iter().map(|(namespace, _)| *namespace).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(keys.iter().map(|(_, id)| *id).collect::<Vec<_>>())
        .cached()
        .execute(conn)
        .await
        .map(drop)
}

/// Returns whether a key of this name is in use.
pub(crate) async fn is_name_in_use(conn: &mut AsyncPgConnection, scope: &Scope, name: &str) -> QueryResult<bool> {
    let in_use = api_keys::table
        .filter(api_keys::namespace_id.eq(scope.namespace))
        .filter(api_keys::name.eq(name))
        .filter(api_keys::revoked_at.is_null());
    diesel::select(diesel::dsl::exists(in_use)).load_one(conn).await
}
