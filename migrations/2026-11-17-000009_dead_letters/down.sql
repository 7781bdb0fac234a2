DROP TABLE waybill.dead_letters;
