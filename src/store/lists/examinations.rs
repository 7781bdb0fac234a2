//! Examinations: what `/doctor` asks the database about itself, about the schema and about work that does not go on.
//!
//! Each is one statement with a bounded result, a JSON document: its facts are shown as they are, and the rules about
//! them are in [`crate::domain::doctor`].

use chrono::{DateTime, Utc};
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::query_builder::BoxedSqlQuery;
use diesel::sql_types::{BigInt, Double, Nullable, Text, Timestamptz};
use diesel_async::AsyncPgConnection;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::{Statement, statement};

/// The number up to which rows are counted.
pub(crate) const COUNT_CAP: i64 = 1_000;

/// The number of tables, transactions, tags and other things that a check names.
const MAX_NAMED: i64 = 10;

/// What is examined. The numbers are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Examination {
    Settings,
    Size,
    Connections,
    Indexes,
    Tables,
    Transactions,
    PreparedTransactions,
    ReplicationSlots,
    Wraparound,
    Clock,
    Partitions,
    UnservedTags,
    Leases { overdue: f64, stale: f64 },
    DeadLetters,
    Breakers,
    Operations { overdue: f64 },
    Keys { within: f64 },
}

type Query = BoxedSqlQuery<'static, Pg, diesel::query_builder::SqlQuery>;

fn query(statement: Statement) -> Query {
    statement.query().into_boxed()
}

impl Examination {
    fn query(self, now: Option<DateTime<Utc>>) -> Query {
        let at = |statement: Statement| query(statement).bind::<Nullable<Timestamptz>, _>(now);
        let counted = |statement: Statement| at(statement).bind::<BigInt, _>(COUNT_CAP).bind::<BigInt, _>(MAX_NAMED);
        match self {
            Examination::Settings => query(statement!("examine_settings")),
            Examination::Size => query(statement!("examine_size")),
            Examination::Connections => query(statement!("examine_connections")),
            Examination::Indexes => query(statement!("examine_indexes")),
            Examination::Tables => query(statement!("examine_tables")).bind::<BigInt, _>(MAX_NAMED),
            Examination::Transactions => at(statement!("examine_transactions")).bind::<BigInt, _>(MAX_NAMED),
            Examination::PreparedTransactions => {
                at(statement!("examine_prepared_transactions")).bind::<BigInt, _>(MAX_NAMED)
            }
            Examination::ReplicationSlots => {
                query(statement!("examine_replication_slots")).bind::<BigInt, _>(MAX_NAMED)
            }
            Examination::Wraparound => query(statement!("examine_wraparound")),
            Examination::Clock => query(statement!("examine_clock")),
            Examination::Partitions => query(statement!("examine_partitions")),
            Examination::UnservedTags => counted(statement!("examine_unserved_tags")),
            Examination::Leases { overdue, stale } => {
                counted(statement!("examine_leases")).bind::<Double, _>(overdue).bind::<Double, _>(stale)
            }
            Examination::DeadLetters => counted(statement!("examine_dead_letters")),
            Examination::Breakers => counted(statement!("examine_breakers")),
            Examination::Operations { overdue } => counted(statement!("examine_operations")).bind::<Double, _>(overdue),
            Examination::Keys { within } => {
                at(statement!("examine_keys")).bind::<BigInt, _>(MAX_NAMED).bind::<Double, _>(within)
            }
        }
    }
}

#[derive(QueryableByName)]
struct FactsRow {
    #[diesel(sql_type = Text)]
    facts: String,
}

/// Examines something, and returns its facts.
pub(crate) async fn examine<T: DeserializeOwned>(
    conn: &mut AsyncPgConnection,
    examination: Examination,
    now: Option<DateTime<Utc>>,
) -> Result<T, Error> {
    let row: FactsRow = examination.query(now).load_one(conn).await?;
    serde_json::from_str(&row.facts).map_err(|error| Error::Internal(format!("the facts of {examination:?}: {error}")))
}
