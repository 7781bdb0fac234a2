-- :now timestamptz, :max_ranges bigint
--
-- Adds summaries of the newest blocks of the event log to its block range index, of up to :max_ranges ranges of
-- blocks per partition. Returns the number of new summaries.
--
-- The last range of a partition that still grows is left out: its summary would be written again with each entry.
-- Partitions before last week's are complete.
--
-- A summary takes the same lock as autovacuum. A partition that has it is left out: autovacuum would be cancelled
-- for the sake of whoever waits for it, and it adds the summaries itself.
SELECT coalesce(sum(brin_summarize_range(partitions.blocks, range * partitions.pages_per_range)), 0)::bigint AS summaries
FROM (
    SELECT i.indexrelid::regclass AS blocks, p.pages_per_range,
           ceil((pg_relation_size(i.indrelid) / current_setting('block_size')::numeric - w.growing_pages) / p.pages_per_range)::bigint AS ranges
    FROM pg_inherits h
    JOIN pg_class t ON t.oid = h.inhrelid
    JOIN pg_index i ON i.indrelid = t.oid
    JOIN pg_class c ON c.oid = i.indexrelid
    JOIN pg_am a ON a.oid = c.relam AND a.amname = 'brin'
    CROSS JOIN LATERAL (
        SELECT option_value::bigint AS pages_per_range FROM pg_options_to_table(c.reloptions) WHERE option_name = 'pages_per_range'
    ) p
    CROSS JOIN LATERAL (
        SELECT 'event_log_' || to_char(coalesce(:now, now()) - interval '14 days', 'YYYYMMDD') AS first_partition,
               CASE WHEN t.relname <= 'event_log_' || to_char(coalesce(:now, now()) - interval '8 days', 'YYYYMMDD') THEN 0
                    ELSE p.pages_per_range END AS growing_pages
    ) w
    WHERE h.inhparent = 'waybill.event_log'::regclass
      AND NOT pg_is_in_recovery()
      AND t.relname >= w.first_partition
      AND NOT EXISTS (SELECT 1 FROM pg_locks l WHERE l.relation = t.oid AND l.mode = 'ShareUpdateExclusiveLock')
) partitions
CROSS JOIN LATERAL generate_series(greatest(ranges - :max_ranges, 0), ranges - 1) AS range
