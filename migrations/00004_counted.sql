-- +goose Up

-- The devices in service by site, rack and class, of which caps are shares: each
-- admission of disruptive work counts them.
create index devices_counted on devices (site_id, rack_id, device_class) where retired_at is null and not inventory_only;

-- +goose Down
drop index devices_counted;
