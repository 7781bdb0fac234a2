-- WHY: what one claim hands out is bounded in bytes, and a claim must know the size of a payload
-- before it takes the event. Reading the payload for that would cost as much as handing it out.
-- Only payloads over 4 KiB have their size here, so that the others cost nothing.
ALTER TABLE waybill.events ADD COLUMN payload_bytes integer;

UPDATE waybill.events SET payload_bytes = octet_length(payload::text) WHERE octet_length(payload::text) > 4096;
