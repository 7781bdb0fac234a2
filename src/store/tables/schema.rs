//! The tables, declared for Diesel. The migrations describe the columns.
//!
//! Written by hand. `tests/schema.rs` compares every table and column with the migrated database.

pub(crate) use super::event_columns::events;

diesel::table! {
    /// Deliveries: one row per event, and one per push.
    waybill.deliveries (namespace_id, id) {
        id -> BigInt,
        event_id -> BigInt,
        namespace_id -> Integer,
        subscription_id -> Nullable<BigInt>,
        status -> Text,
        priority -> SmallInt,
        retry_count -> Integer,
        max_retries -> Integer,
        rescue_count -> Integer,
        lease_id -> BigInt,
        worker_id -> Nullable<Text>,
        lease_expires_at -> Nullable<Timestamptz>,
        cancel_requested -> Bool,
        ready_seq -> Nullable<BigInt>,
        due_at -> Nullable<Timestamptz>,
        expires_at -> Nullable<Timestamptz>,
        ordering_key -> Nullable<Text>,
        order_seq -> Nullable<BigInt>,
        started_at -> Nullable<Timestamptz>,
        settled_lease_id -> Nullable<BigInt>,
        settled_action -> Nullable<Text>,
        progress -> Nullable<Json>,
        result -> Nullable<Json>,
        last_error -> Nullable<Text>,
        updated_at -> Timestamptz,
        listed_status -> Nullable<Text>,
        open_deliveries -> Nullable<Integer>,
        failed_deliveries -> Nullable<Integer>,
        replay_of -> Nullable<BigInt>,
        cancel_reason -> Nullable<Text>,
        cancel_actor -> Nullable<Text>,
    }
}

diesel::table! {
    /// The second and further tags of events.
    waybill.event_tags (namespace_id, tag, event_id) {
        event_id -> BigInt,
        namespace_id -> Integer,
        tag -> Text,
    }
}

diesel::table! {
    /// Deliveries that can be claimed now, by queue.
    waybill.ready (namespace_id, queue, rank, seq) {
        namespace_id -> Integer,
        queue -> Text,
        rank -> SmallInt,
        seq -> BigInt,
        delivery_id -> BigInt,
    }
}

diesel::table! {
    /// Leases to check, by the time of the check.
    waybill.lease_watch (look_at, id) {
        look_at -> Timestamptz,
        id -> BigInt,
        namespace_id -> Integer,
        delivery_ids -> Array<BigInt>,
    }
}

diesel::table! {
    /// The event log.
    waybill.event_log (id, created_at) {
        id -> BigInt,
        namespace_id -> Integer,
        event_id -> BigInt,
        delivery_id -> Nullable<BigInt>,
        action -> Text,
        worker_id -> Nullable<Text>,
        lease_id -> BigInt,
        attempt -> Integer,
        status_code -> Nullable<Integer>,
        execution_time_ms -> Nullable<BigInt>,
        error_message -> Nullable<Text>,
        reason -> Nullable<Text>,
        next_retry_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        error_kind -> Nullable<Text>,
        response_excerpt -> Nullable<Text>,
        subscription_version -> Nullable<Integer>,
        actor -> Nullable<Text>,
        lease_seconds -> Nullable<Float>,
    }
}

diesel::table! {
    /// Settlements that were refused.
    waybill.refused_settlements (namespace_id, event_id, lease_id, action, code, worker_id) {
        namespace_id -> Integer,
        event_id -> BigInt,
        lease_id -> BigInt,
        action -> Text,
        code -> Text,
        worker_id -> Text,
        actor -> Nullable<Text>,
        calls -> BigInt,
        first_at -> Timestamptz,
        last_at -> Timestamptz,
    }
}

diesel::table! {
    /// Claims that a worker may repeat.
    waybill.claim_requests (namespace_id, worker_id, idempotency_key) {
        namespace_id -> Integer,
        worker_id -> Text,
        idempotency_key -> Text,
        delivery_ids -> Array<BigInt>,
        lease_ids -> Array<BigInt>,
        asks -> Integer,
        claimed_at -> Timestamptz,
    }
}

diesel::table! {
    /// Workers and when they called.
    waybill.workers (namespace_id, worker_id) {
        namespace_id -> Integer,
        worker_id -> Text,
        tags -> Array<Text>,
        first_seen_at -> Timestamptz,
        last_seen_at -> Timestamptz,
    }
}

diesel::table! {
    /// Subscriptions, including deleted ones.
    waybill.subscriptions (namespace_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        version -> Integer,
        url -> Text,
        spec -> Json,
        is_active -> Bool,
        inactive_reason -> Nullable<Text>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
        deleted_at -> Nullable<Timestamptz>,
        drained_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    /// The generation number of the set of subscriptions.
    waybill.subscription_catalog (namespace_id) {
        namespace_id -> Integer,
        generation -> BigInt,
    }
}

diesel::table! {
    /// The secrets with which pushes are signed.
    waybill.subscription_secrets (namespace_id, subscription_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        subscription_id -> BigInt,
        secret -> Text,
        expires_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    /// Circuit breakers and pauses of endpoints.
    waybill.endpoints (namespace_id, url) {
        namespace_id -> Integer,
        url -> Text,
        failures_in_row -> Integer,
        opened_at -> Nullable<Timestamptz>,
        paused_until -> Nullable<Timestamptz>,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    /// The rate limiters of subscriptions.
    waybill.subscription_rates (namespace_id, subscription_id) {
        namespace_id -> Integer,
        subscription_id -> BigInt,
        used_until -> Timestamptz,
    }
}

diesel::table! {
    /// Abandoned pushes.
    waybill.dead_letters (namespace_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        delivery_id -> BigInt,
        event_id -> BigInt,
        subscription_id -> BigInt,
        subscription_version -> Integer,
        lease_id -> BigInt,
        reason -> Text,
        detail -> Nullable<Text>,
        actor -> Nullable<Text>,
        ordering_key -> Nullable<Text>,
        event -> Json,
        subscription -> Json,
        attempts -> Json,
        created_at -> Timestamptz,
        replayed_at -> Nullable<Timestamptz>,
        replay_actor -> Nullable<Text>,
        replay_reason -> Nullable<Text>,
        replay_config -> Nullable<Text>,
        replay_payload -> Nullable<Json>,
        replay_webhook_id -> Nullable<Text>,
    }
}

diesel::table! {
    /// Who changed what is not about one event.
    waybill.audit_log (namespace_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        created_at -> Timestamptz,
        action -> Text,
        actor -> Nullable<Text>,
        subject_kind -> Nullable<Text>,
        subject_id -> Nullable<BigInt>,
        address -> Nullable<Text>,
        detail -> Json,
    }
}

diesel::table! {
    /// Operators' work on many rows.
    waybill.operations (namespace_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        kind -> Text,
        status -> Text,
        filter -> Json,
        config -> Nullable<Text>,
        reason -> Nullable<Text>,
        per_second -> Double,
        actor -> Nullable<Text>,
        matched -> BigInt,
        matched_is_exact -> Bool,
        done -> BigInt,
        skipped -> BigInt,
        failed -> BigInt,
        last_id -> BigInt,
        until_id -> BigInt,
        part_of -> Nullable<BigInt>,
        part_last_id -> Nullable<BigInt>,
        part_is_changed -> Bool,
        part_has_failed -> Bool,
        failed_steps -> Integer,
        next_at -> Timestamptz,
        created_at -> Timestamptz,
        started_at -> Nullable<Timestamptz>,
        finished_at -> Nullable<Timestamptz>,
    }
}

diesel::table! {
    /// Filters that exceeded their budget.
    waybill.filter_overruns (namespace_id, subscription_id) {
        namespace_id -> Integer,
        subscription_id -> BigInt,
        events -> BigInt,
        last_at -> Timestamptz,
        last_event_id -> BigInt,
    }
}

diesel::table! {
    /// Histories of the database.
    waybill.histories (first_id) {
        first_id -> BigInt,
        first_ready_seq -> BigInt,
        first_log_id -> BigInt,
        epoch -> Text,
        system_identifier -> Nullable<BigInt>,
        timeline -> Nullable<BigInt>,
        database_oid -> BigInt,
        table_oid -> BigInt,
        reason -> Text,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    /// Namespaces, each with its own events and subscriptions.
    waybill.namespaces (id) {
        id -> Integer,
        name -> Text,
        created_at -> Timestamptz,
        settings -> Json,
    }
}

diesel::allow_tables_to_appear_in_same_query!(events, deliveries);

diesel::table! {
    /// API keys.
    waybill.api_keys (namespace_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        name -> Text,
        scopes -> Array<Text>,
        tag_patterns -> Nullable<Array<Text>>,
        expires_at -> Nullable<Timestamptz>,
        revoked_at -> Nullable<Timestamptz>,
        last_used_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
        created_by -> Nullable<Text>,
        publishes_per_second -> Nullable<Integer>,
        publish_burst -> Nullable<Integer>,
    }
}

diesel::table! {
    /// The servers that share the limits of rates.
    waybill.servers (instance) {
        instance -> Text,
        seen_at -> Timestamptz,
    }
}

diesel::table! {
    /// The hashes of the secrets of API keys.
    waybill.api_key_secrets (hash) {
        hash -> Binary,
        namespace_id -> Integer,
        key_id -> BigInt,
        prefix -> Text,
        created_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        is_session -> Bool,
    }
}

diesel::table! {
    /// The generation of the keys, and whether requests must carry one.
    waybill.key_catalog (is_only_row) {
        is_only_row -> Bool,
        generation -> BigInt,
        is_required -> Bool,
    }
}

diesel::table! {
    /// Where webhooks of other systems come in.
    waybill.sources (namespace_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        version -> Integer,
        token_hash -> Binary,
        token -> Text,
        spec -> Json,
        is_active -> Bool,
        refused -> BigInt,
        last_refused_at -> Nullable<Timestamptz>,
        last_refusal -> Nullable<Text>,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    /// Event types that are declared.
    waybill.event_types (namespace_id, name) {
        namespace_id -> Integer,
        id -> BigInt,
        name -> Text,
        description -> Nullable<Text>,
        schema -> Nullable<Json>,
        schema_digest -> Nullable<Text>,
        examples -> Json,
        version -> Integer,
        revision -> Integer,
        created_at -> Timestamptz,
        updated_at -> Timestamptz,
    }
}

diesel::table! {
    /// The secrets that sources share with their senders.
    waybill.source_secrets (namespace_id, source_id, id) {
        id -> BigInt,
        namespace_id -> Integer,
        source_id -> BigInt,
        secret -> Text,
        expires_at -> Nullable<Timestamptz>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    /// The generation of the sources.
    waybill.source_catalog (is_only_row) {
        is_only_row -> Bool,
        generation -> BigInt,
    }
}

diesel::table! {
    /// The latest versions of the schemas of event types, including the present ones.
    waybill.event_type_versions (namespace_id, name, version) {
        namespace_id -> Integer,
        name -> Text,
        version -> Integer,
        schema -> Nullable<Json>,
        created_at -> Timestamptz,
    }
}

diesel::table! {
    /// The keys under which events were published.
    waybill.idempotency_keys (namespace_id, origin, key) {
        event_id -> BigInt,
        created_at -> Timestamptz,
        expires_at -> Nullable<Timestamptz>,
        origin -> BigInt,
        namespace_id -> Integer,
        left_status -> Nullable<Text>,
        key -> Text,
        fingerprint -> Binary,
    }
}

diesel::table! {
    /// What each server has done, by minute and tag.
    waybill.stats_minutes (namespace_id, tag, minute, server) {
        minute -> Timestamptz,
        server -> BigInt,
        namespace_id -> Integer,
        revision -> Integer,
        published -> Integer,
        claimed -> Integer,
        completed -> Integer,
        failed -> Integer,
        retried -> Integer,
        released -> Integer,
        reset -> Integer,
        expired -> Integer,
        pushes_succeeded -> Integer,
        pushes_failed -> Integer,
        dead_lettered -> Integer,
        tag -> Text,
        latency_buckets -> Array<SmallInt>,
        latency_counts -> Array<Integer>,
    }
}

diesel::table! {
    /// What each server has done, by hour and tag.
    waybill.stats_hours (namespace_id, tag, hour, server) {
        hour -> Timestamptz,
        server -> BigInt,
        namespace_id -> Integer,
        revision -> Integer,
        published -> Integer,
        claimed -> Integer,
        completed -> Integer,
        failed -> Integer,
        retried -> Integer,
        released -> Integer,
        reset -> Integer,
        expired -> Integer,
        pushes_succeeded -> Integer,
        pushes_failed -> Integer,
        dead_lettered -> Integer,
        tag -> Text,
        latency_buckets -> Array<SmallInt>,
        latency_counts -> Array<Integer>,
    }
}
