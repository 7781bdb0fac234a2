//! The columns of an event, listed once. Claims, lists and an event's JSON are built from this list.

use chrono::{DateTime, Utc};
use diesel::prelude::{Queryable, QueryableByName, Selectable};

use crate::domain::event::{NewEvent, RunAt};
use crate::domain::ids::{EventId, LeaseId};
use crate::domain::json::RawJson;
use crate::domain::status::Status;
use crate::store::tables::columns::{JsonColumn, StatusColumn, TagsColumn};
use crate::store::tables::events::{HandedOver, LARGE_PAYLOAD, Recipient, StoredEvent};
use crate::store::tables::schema::deliveries;

diesel::table! {
    /// Published events. They never change.
    waybill.events (namespace_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        title -> Text,
        description -> Nullable<Text>,
        event_type -> Nullable<Text>,
        tags -> Text,
        labels -> Nullable<Json>,
        payload -> Nullable<Json>,
        priority -> SmallInt,
        max_retries -> Integer,
        backoff -> Nullable<Json>,
        ordering_key -> Nullable<Text>,
        correlation_id -> Nullable<Text>,
        traceparent -> Nullable<Text>,
        run_at -> Nullable<Timestamptz>,
        expires_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        payload_bytes -> Nullable<Integer>,
        key_origin -> Nullable<BigInt>,
        idempotency_key -> Nullable<Text>,
        published_by -> Nullable<Text>,
        client_address -> Nullable<Text>,
    }
}

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
    tags: TagsColumn,
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
        let status = stored.status(&new);
        let labels = (!new.labels.is_empty()).then(|| RawJson::of(&new.labels).ok()).flatten();
        let event = EventColumns {
            id: stored.id,
            title: new.title,
            description: new.description,
            tags: TagsColumn(new.tags.as_slice().to_vec()),
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
            status: StatusColumn(status),
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

    /// Returns the row of an event that was just published and handed over, without reading it back.
    pub fn handed_over(new: NewEvent, stored: &StoredEvent, recipient: &Recipient, lease: HandedOver) -> Self {
        let EventRow { event, work } = Self::published(new, stored);
        let work = WorkColumns {
            status: StatusColumn(Status::Processing),
            lease_id: lease.lease_id,
            worker_id: Some(recipient.worker_id.clone()),
            lease_expires_at: Some(lease.lease_expires_at),
            ..work
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
    TagsColumn: tags => ColumnValue::Texts(&tags.0),
    Option<JsonColumn>: json => ColumnValue::Json(json.as_ref().map(|json| &json.0)),
    DateTime<Utc>: time => ColumnValue::Time(Some(*time)),
    Option<DateTime<Utc>>: time => ColumnValue::Time(*time),
}

/// Binds the columns of new events, in the order in which the publishing statements declare them. A
/// macro, because each `bind` returns another type.
macro_rules! bind_events {
    ($query:expr, $now:expr, $catalogs:expr, $namespaces:expr, $new:expr) => {
        $query
            .bind::<Nullable<Timestamptz>, _>($now)
            .bind::<Array<Integer>, _>($catalogs.iter().map(|(namespace, _)| *namespace).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>($catalogs.iter().map(|(_, generation)| *generation).collect::<Vec<_>>())
            .bind::<Array<Integer>, _>($namespaces)
            .bind::<Array<Text>, _>($new.iter().map(|e| e.title.as_str()).collect::<Vec<_>>())
            .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null($new, |e| e.description.as_deref()))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null($new, |e| e.event_type.as_deref()))
            .bind::<Array<Text>, _>($new.iter().map(|e| e.tags.joined()).collect::<Vec<_>>())
            .bind::<Nullable<Array<Nullable<Json>>>, _>(column_or_null($new, |e| {
                (!e.labels.is_empty()).then(|| own_json(&e.labels))
            }))
            .bind::<Nullable<Array<Nullable<Json>>>, _>(column_or_null($new, |e| e.payload.as_ref().map(JsonParameter)))
            .bind::<Array<SmallInt>, _>($new.iter().map(|e| e.priority).collect::<Vec<_>>())
            .bind::<Array<Integer>, _>($new.iter().map(|e| e.max_retries).collect::<Vec<_>>())
            .bind::<Nullable<Array<Nullable<Json>>>, _>(column_or_null($new, |e| e.backoff.as_ref().map(own_json)))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null($new, |e| e.ordering_key.as_deref()))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null($new, |e| e.correlation_id.as_deref()))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null($new, |e| e.traceparent.as_deref()))
            .bind::<Nullable<Array<Nullable<Timestamptz>>>, _>(column_or_null($new, |e| run_at(e.run_at)))
            .bind::<Nullable<Array<Nullable<Double>>>, _>(column_or_null($new, |e| delay(e.run_at)))
            .bind::<Nullable<Array<Nullable<Timestamptz>>>, _>(column_or_null($new, |e| e.expires_at))
            .bind::<Nullable<Array<Nullable<Integer>>>, _>(column_or_null($new, |e| large_payload(e)))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null($new, |e| e.published_by.as_deref()))
            .bind::<Nullable<Array<Nullable<Text>>>, _>(column_or_null($new, |e| {
                e.client_address.map(|a| a.to_string())
            }))
    };
}
pub(super) use bind_events;

/// Returns the size of an event's payload, if it is large.
pub(super) fn large_payload(event: &NewEvent) -> Option<i32> {
    let bytes = event.payload.as_ref()?.as_str().len();
    // A payload has at most 1 MB, so the cast cannot truncate.
    (bytes > LARGE_PAYLOAD).then_some(bytes as i32)
}

pub(super) fn own_json(value: &impl serde::Serialize) -> JsonColumn {
    // Strings, numbers and maps with string keys can always be serialised.
    JsonColumn(RawJson::of(value).expect("plain data can be serialised"))
}

pub(super) fn run_at(run_at: RunAt) -> Option<DateTime<Utc>> {
    match run_at {
        RunAt::At(time) => Some(time),
        RunAt::Now | RunAt::After(_) => None,
    }
}

pub(super) fn delay(run_at: RunAt) -> Option<f64> {
    match run_at {
        RunAt::After(seconds) => Some(seconds.as_f64()),
        RunAt::Now | RunAt::At(_) => None,
    }
}
