-- The tables of the raw SQL measurements. `naive_*` is the obvious design: one table that is updated
-- in place, and a log. The other tables are split, so the life of a batch rewrites few rows.

create table naive_events (
    id bigint generated always as identity primary key,
    title text not null,
    tags text[] not null,
    payload jsonb not null,
    status text not null default 'PENDING',
    attempt int not null default 0,
    worker_id text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now()
);
create index naive_pending on naive_events (id) where status = 'PENDING';

create table naive_log (
    id bigint generated always as identity primary key,
    event_id bigint not null,
    worker_id text not null,
    action text not null,
    attempt int not null,
    created_at timestamptz not null default now()
);
create index on naive_log (event_id);

create table events (
    id bigint generated always as identity primary key,
    title text not null,
    tags text[] not null,
    payload jsonb not null,
    created_at timestamptz not null default now()
);
create table deliveries (
    event_id bigint primary key,
    status "char" not null default 'P',
    attempt int not null default 0,
    worker_id text,
    updated_at timestamptz not null default now()
) with (fillfactor = 60);
create table ready (
    tag text collate "C" not null,
    event_id bigint not null,
    primary key (tag, event_id)
);
create table log (
    id bigint generated always as identity,
    event_id bigint not null,
    worker_id text not null,
    action "char" not null,
    attempt int not null,
    created_at timestamptz not null default now()
);
create unique index on log (event_id, action, attempt);
