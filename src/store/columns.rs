//! How the domain's words look in columns.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::pg::{Pg, PgValue};
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{Json, Text};
use std::io::Write;

use crate::domain::{action::Action, json::RawJson, status::Status};

/// [`RawJson`] as a `json` column: the text itself, in both directions.
#[derive(Debug, Clone, AsExpression, FromSqlRow)]
#[diesel(sql_type = Json)]
pub struct JsonColumn(pub RawJson);

impl FromSql<Json, Pg> for JsonColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        Ok(JsonColumn(RawJson::from_column(std::str::from_utf8(value.as_bytes())?.to_owned())))
    }
}

impl ToSql<Json, Pg> for JsonColumn {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.0.as_str().as_bytes())?;
        Ok(IsNull::No)
    }
}

/// The same on its way in, borrowed: payloads are not copied to be bound.
#[derive(Debug, Clone, Copy, AsExpression)]
#[diesel(sql_type = Json)]
pub struct JsonParameter<'a>(pub &'a RawJson);

impl ToSql<Json, Pg> for JsonParameter<'_> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.0.as_str().as_bytes())?;
        Ok(IsNull::No)
    }
}

/// [`Status`] as a `text` column.
#[derive(Debug, Clone, Copy, AsExpression, FromSqlRow)]
#[diesel(sql_type = Text)]
pub struct StatusColumn(pub Status);

impl FromSql<Text, Pg> for StatusColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let word = std::str::from_utf8(value.as_bytes())?;
        let status = Status::parse(word).ok_or_else(|| format!("unknown status {word}"))?;
        Ok(StatusColumn(status))
    }
}

/// [`Action`] as a `text` column.
#[derive(Debug, Clone, Copy, AsExpression, FromSqlRow)]
#[diesel(sql_type = Text)]
pub struct ActionColumn(pub Action);

impl FromSql<Text, Pg> for ActionColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let word = std::str::from_utf8(value.as_bytes())?;
        let action = Action::parse(word).ok_or_else(|| format!("unknown action {word}"))?;
        Ok(ActionColumn(action))
    }
}
