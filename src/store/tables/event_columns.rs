//! The columns of an event, listed once. Claims, lists and an event's JSON are built from this list.

use chrono::{DateTime, Utc};
use diesel::prelude::{Queryable, QueryableByName, Selectable};

use crate::domain::event::NewEvent;
use crate::domain::ids::{EventId, LeaseId};
use crate::domain::json::RawJson;
use crate::domain::status::Status;
use crate::store::tables::columns::{JsonColumn, StatusColumn};
use crate::store::tables::events::StoredEvent;
use crate::store::tables::schema::{deliveries, events};

/// The value of a column, for code that treats all columns alike.
pub enum ColumnValue<'a> {
    Id(EventId),
    Integer(i64),
    Text(Option<&'a str>),
    Texts(&'a [String]),
    Json(Option<&'a RawJson>),
    Time(Option<DateTime<Utc>>),
}

/// Declares a row of `$table` whose columns can be enumerated.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident of $table:ident { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
        #[diesel(table_name = $table, check_for_backend(diesel::pg::Pg))]
        pub struct $name {
            $(pub $field: $type,)*
        }

        impl $name {
            pub const NAMES: &'static [&'static str] = &[$(stringify!($field)),*];
        }
    };
}

macro_rules! event_columns {
    ($($field:ident: $type:ty,)*) => {
        columns! {
            /// The columns of an event that never change. The migration describes them.
            EventColumns of events { $($field: $type,)* }
        }

        impl EventColumns {
            /// Returns the names and values of all columns.
            pub fn values(&self) -> impl Iterator<Item = (&'static str, ColumnValue<'_>)> {
                [$((stringify!($field), ColumnValue::from(&self.$field))),*].into_iter()
            }
        }
    };
}

event_columns! {
    id: EventId,
    title: String,
    description: Option<String>,
    tags: Vec<String>,
    event_type: Option<String>,
    labels: Option<JsonColumn>,
    payload: Option<JsonColumn>,
    priority: i16,
    max_retries: i32,
    run_at: Option<DateTime<Utc>>,
    expires_at: Option<DateTime<Utc>>,
    ordering_key: Option<String>,
    correlation_id: Option<String>,
    traceparent: Option<String>,
    created_at: DateTime<Utc>,
}

columns! {
    /// The state of the event's own delivery, which changes.
    WorkColumns of deliveries {
        status: StatusColumn,
        retry_count: i32,
        lease_id: LeaseId,
        due_at: Option<DateTime<Utc>>,
        worker_id: Option<String>,
        lease_expires_at: Option<DateTime<Utc>>,
        cancel_requested: bool,
        progress: Option<JsonColumn>,
        result: Option<JsonColumn>,
        last_error: Option<String>,
        updated_at: DateTime<Utc>,
    }
}

/// An event and its state.
#[derive(Debug, Clone, Queryable, Selectable, QueryableByName)]
#[diesel(check_for_backend(diesel::pg::Pg))]
pub struct EventRow {
    #[diesel(embed)]
    pub event: EventColumns,
    #[diesel(embed)]
    pub work: WorkColumns,
}

impl EventRow {
    /// Returns the row of an event that was just published, without reading it back.
    pub fn published(new: NewEvent, stored: &StoredEvent) -> Self {
        let is_done = new.tags.is_empty() && stored.enqueued == 0;
        let labels = (!new.labels.is_empty()).then(|| RawJson::of(&new.labels).ok()).flatten();
        let event = EventColumns {
            id: stored.id,
            title: new.title,
            description: new.description,
            tags: new.tags.as_slice().to_vec(),
            event_type: new.event_type,
            labels: labels.map(JsonColumn),
            payload: new.payload.map(JsonColumn),
            priority: new.priority,
            max_retries: new.max_retries,
            run_at: stored.run_at,
            expires_at: new.expires_at,
            ordering_key: new.ordering_key,
            correlation_id: new.correlation_id,
            traceparent: new.traceparent,
            created_at: stored.created_at,
        };
        let work = WorkColumns {
            // An event without workers and subscribers has nothing left to do.
            status: StatusColumn(if is_done { Status::Completed } else { Status::Pending }),
            retry_count: 0,
            lease_id: LeaseId::NONE,
            due_at: stored.due_at,
            worker_id: None,
            lease_expires_at: None,
            cancel_requested: false,
            progress: None,
            result: None,
            last_error: None,
            updated_at: stored.created_at,
        };
        EventRow { event, work }
    }
}

macro_rules! column_value {
    ($($type:ty: $value:ident => $column:expr,)*) => {
        $(impl<'a> From<&'a $type> for ColumnValue<'a> {
            fn from($value: &'a $type) -> Self {
                $column
            }
        })*
    };
}

column_value! {
    EventId: id => ColumnValue::Id(*id),
    i16: number => ColumnValue::Integer((*number).into()),
    i32: number => ColumnValue::Integer((*number).into()),
    String: text => ColumnValue::Text(Some(text)),
    Option<String>: text => ColumnValue::Text(text.as_deref()),
    Vec<String>: texts => ColumnValue::Texts(texts),
    Option<JsonColumn>: json => ColumnValue::Json(json.as_ref().map(|json| &json.0)),
    DateTime<Utc>: time => ColumnValue::Time(Some(*time)),
    Option<DateTime<Utc>>: time => ColumnValue::Time(*time),
}
