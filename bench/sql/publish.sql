insert into naive_events (title, tags, payload) values ('bench', array['bench'], (:payload)::jsonb);
