-- +goose Up

-- Few rows have anything unread: each listing's end looks for those of its site.
create index device_writers_unread on device_writers (device_id) where unread <> '{}';

-- +goose Down
drop index device_writers_unread;
