//! Conversions between the domain's types and columns.

use diesel::deserialize::{self, FromSql, FromSqlRow};
use diesel::expression::AsExpression;
use diesel::internal::derives::as_expression::Bound;
use diesel::pg::{Pg, PgValue};
use diesel::prelude::Queryable;
use diesel::serialize::{self, IsNull, Output, ToSql};
use diesel::sql_types::{BigInt, Integer, Json, Nullable, SingleValue, Text};
use std::io::Write;

use crate::domain::ids::{DeliveryId, EventId, KeyId, LeaseId, NamespaceId, SourceId, SubscriptionId};
use crate::domain::{action::Action, json::RawJson, status::Status};

/// [`RawJson`] as a `json` column. The text is stored and returned unchanged.
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

/// A borrowed [`RawJson`] as a parameter. Binding it does not copy the payload.
#[derive(Debug, Clone, Copy, AsExpression)]
#[diesel(sql_type = Json)]
pub struct JsonParameter<'a>(pub &'a RawJson);

impl ToSql<Json, Pg> for JsonParameter<'_> {
    fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
        out.write_all(self.0.as_str().as_bytes())?;
        Ok(IsNull::No)
    }
}

/// [`Status`] as an enum column, whose values are read and written as text.
#[derive(Debug, Clone, Copy, AsExpression, FromSqlRow)]
#[diesel(sql_type = Text)]
pub struct StatusColumn(pub Status);

impl FromSql<Text, Pg> for StatusColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let text = std::str::from_utf8(value.as_bytes())?;
        let status = Status::parse(text).ok_or_else(|| format!("unknown status {text}"))?;
        Ok(StatusColumn(status))
    }
}

/// The tags of an event as a `text` column, joined by commas.
#[derive(Debug, Clone, FromSqlRow)]
pub struct TagsColumn(pub Vec<String>);

impl FromSql<Text, Pg> for TagsColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let joined = std::str::from_utf8(value.as_bytes())?;
        Ok(TagsColumn(joined.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect()))
    }
}

/// [`Action`] as an enum column, whose values are read and written as text.
#[derive(Debug, Clone, Copy, AsExpression, FromSqlRow)]
#[diesel(sql_type = Text)]
pub struct ActionColumn(pub Action);

impl FromSql<Text, Pg> for ActionColumn {
    fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
        let text = std::str::from_utf8(value.as_bytes())?;
        let action = Action::parse(text).ok_or_else(|| format!("unknown action {text}"))?;
        Ok(ActionColumn(action))
    }
}

/// Implements Diesel's traits for an id newtype, which is stored as its number.
macro_rules! id_column {
    ($id:ty, $sql:ty, $number:ty) => {
        impl FromSql<$sql, Pg> for $id {
            fn from_sql(value: PgValue<'_>) -> deserialize::Result<Self> {
                <$number as FromSql<$sql, Pg>>::from_sql(value).map(Self)
            }
        }

        impl ToSql<$sql, Pg> for $id {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                ToSql::<$sql, Pg>::to_sql(&self.0, out)
            }
        }

        impl<ST: SingleValue> Queryable<ST, Pg> for $id
        where
            Self: FromSql<ST, Pg>,
        {
            type Row = Self;

            fn build(row: Self) -> deserialize::Result<Self> {
                Ok(row)
            }
        }

        impl AsExpression<$sql> for $id {
            type Expression = Bound<$sql, Self>;

            fn as_expression(self) -> Self::Expression {
                Bound::new(self)
            }
        }

        impl<'a> AsExpression<$sql> for &'a $id {
            type Expression = Bound<$sql, Self>;

            fn as_expression(self) -> Self::Expression {
                Bound::new(self)
            }
        }

        impl AsExpression<Nullable<$sql>> for $id {
            type Expression = Bound<Nullable<$sql>, Self>;

            fn as_expression(self) -> Self::Expression {
                Bound::new(self)
            }
        }

        impl ToSql<Nullable<$sql>, Pg> for $id {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                ToSql::<$sql, Pg>::to_sql(&self.0, out)
            }
        }
    };
}

id_column!(NamespaceId, Integer, i32);
id_column!(EventId, BigInt, i64);
id_column!(DeliveryId, BigInt, i64);
id_column!(KeyId, BigInt, i64);
id_column!(LeaseId, BigInt, i64);
id_column!(SourceId, BigInt, i64);
id_column!(SubscriptionId, BigInt, i64);
