with published as (
    insert into events (title, tags, payload)
    select 'bench', array['bench'], (:payload)::jsonb from generate_series(1, 100)
    returning id, tags
), delivered as (
    insert into deliveries (event_id) select id from published
)
insert into ready (tag, event_id) select tag, id from published, unnest(tags) as tag;
with taken as (
    select event_id from ready where tag = 'bench' order by event_id limit 100 for update skip locked
), gone as (
    delete from ready using taken where ready.tag = 'bench' and ready.event_id = taken.event_id
), claimed as (
    update deliveries set status = 'R', worker_id = 'bench:1', updated_at = now()
    from taken where deliveries.event_id = taken.event_id and status = 'P'
    returning deliveries.event_id, attempt
), logged as (
    insert into log (event_id, worker_id, action, attempt) select event_id, 'bench:1', 'P', attempt from claimed
)
select '{' || coalesce(string_agg(event_id::text, ','), '') || '}' as ids from claimed \gset
with done as (
    update deliveries set status = 'C', updated_at = now()
    where event_id = any ((:ids)::bigint[]) and status = 'R' and worker_id = 'bench:1'
    returning event_id, attempt
)
insert into log (event_id, worker_id, action, attempt) select event_id, 'bench:1', 'C', attempt from done;
