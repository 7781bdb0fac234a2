insert into naive_events (title, tags, payload) values ('bench', array['bench'], (:payload)::jsonb);
with claimed as (
    update naive_events set status = 'PROCESSING', worker_id = 'bench:1', updated_at = now()
    where id = (
        select id from naive_events where status = 'PENDING' and tags && array['bench']
        order by id limit 1 for update skip locked
    )
    returning id, attempt
), logged as (
    insert into naive_log (event_id, worker_id, action, attempt)
    select id, 'bench:1', 'PICKED', attempt from claimed
)
select coalesce(max(id), 0) as event from claimed \gset
with done as (
    update naive_events set status = 'COMPLETED', updated_at = now()
    where id = :event and status = 'PROCESSING' and worker_id = 'bench:1'
    returning id, attempt
)
insert into naive_log (event_id, worker_id, action, attempt) select id, 'bench:1', 'COMPLETED', attempt from done;
