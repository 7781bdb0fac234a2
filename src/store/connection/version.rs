//! The version of PostgreSQL.

use diesel::QueryResult;
use diesel::prelude::QueryableByName;
use diesel::sql_types::Text;
use diesel_async::AsyncPgConnection;

use crate::store::connection::whole_result::LoadOne;
use crate::store::statement::statement;

/// Which database this is.
#[derive(Debug, QueryableByName)]
pub(crate) struct DatabaseVersion {
    #[diesel(sql_type = Text)]
    pub version: String,
    #[diesel(sql_type = Text)]
    pub name: String,
}

/// Returns the version of PostgreSQL and the name of the database.
pub(crate) async fn read_database_version(conn: &mut AsyncPgConnection) -> QueryResult<DatabaseVersion> {
    statement!("read_database_version").query().load_one(conn).await
}
