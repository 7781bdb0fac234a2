DROP TABLE waybill.filter_overruns;
