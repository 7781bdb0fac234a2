DROP TABLE waybill.replay_jobs;
DROP TABLE waybill.dead_letters;
