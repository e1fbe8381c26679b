-- +goose Up

-- Policy. A bundle row holds policies/ alone: each binary unifies it with its own schema/.
create table policy_bundles (
	version   text primary key, -- sha256:<hex> over sorted (path, bytes) of policies/ without tests
	semantics integer     not null,
	files     jsonb       not null, -- path → text
	stored_at timestamptz not null default now(),
	stored_by text        not null
);

create table active_policy (
	one          boolean primary key default true check (one),
	version      text        not null references policy_bundles (version),
	activated_at timestamptz not null default now(),
	activated_by text        not null
);

-- Stored masks use the bit: it is given once and never reused.
create table condition_types (
	type          text primary key,
	bit           smallint not null unique check (bit between 0 and 63),
	first_version text     not null
);

-- Sites are versioned rows, never a replica's file.
create table sites (
	id             bigint generated always as identity primary key,
	name           text        not null unique,
	revision       bigint      not null,
	spec           jsonb       not null,
	inventory_only boolean     not null default false,
	applied_at     timestamptz not null default now(),
	applied_by     text        not null
);

create table site_revisions (
	site_id    bigint      not null references sites (id),
	revision   bigint      not null,
	spec       jsonb       not null,
	applied_at timestamptz not null default now(),
	applied_by text        not null,
	primary key (site_id, revision)
);

create table racks (
	id         bigint generated always as identity primary key,
	site_id    bigint not null references sites (id),
	source_ref text   not null, -- the inventory source's own identity; the name is display
	name       text   not null,
	unique (site_id, source_ref)
);

create table devices (
	id                       bigint generated always as identity primary key,
	site_id                  bigint      not null references sites (id),
	rack_id                  bigint      references racks (id),
	position                 text        not null default '',
	name                     text        not null,
	name_key                 text        not null, -- normalised for joins
	serial                   text        not null default '',
	serial_key               text        not null default '', -- '' for none or a placeholder
	bmc_address              text        not null default '',
	device_class             text        not null default 'other',
	resource_class           text        not null default '',
	inventory_status         text        not null default 'unknown',
	operational_status       text        not null default 'unknown',
	health_status            text        not null default 'unknown',
	customer_ready           boolean     not null default false,
	inventory_only           boolean     not null default false,
	in_triage                boolean     not null default false,
	entered_triage_at        timestamptz,
	triage_ticket_url        text        not null default '',
	parent_ticket_url        text        not null default '',
	annotations              jsonb       not null default '{}',
	infrastructure_ref       text        not null default '',
	enrollment_validated_ref text        not null default '',
	enrollment_proof_source  text        not null default 'none',
	enrollment_validated_at  timestamptz,
	entered_service_at       timestamptz,
	failure_reason           text        not null default '',
	failed_at                timestamptz,
	-- mirrors of what the sources said last
	ironic_provision_state   text        not null default '',
	slurm_states             text[]      not null default '{}',
	chassis_health           text        not null default '',
	-- conditions packed by condition_types.bit; a bit in neither cond_true nor cond_unknown is False
	cond_true                bigint      not null default 0,
	cond_unknown             bigint      not null default 0,
	cond_present             bigint      not null default 0, -- a row exists
	in_scope                 bigint      not null default 0, -- types whose writer has the device in its scope
	unread                   bigint      not null default 0, -- types that a good reading did not give
	posted                   bigint      not null default 0, -- observed types whose row came over HTTP: as fresh as the row
	decisive                 bigint      not null default 0,
	rung                     text        not null default '', -- that gave operational_status
	observation_version      text        not null default '', -- schema, catalogue and site under which the conditions were emitted
	due_at                   timestamptz, -- the next instant at which time alone may change the device
	absent_since             timestamptz, -- the inventory source no longer lists it
	retired_at               timestamptz,
	created_at               timestamptz not null default now(),
	updated_at               timestamptz not null default now()
);

create index devices_site on devices (site_id, id) where retired_at is null;
create index devices_name on devices (site_id, name_key);
create index devices_serial on devices (site_id, serial_key) where serial_key <> '';
create index devices_status on devices (operational_status, id) where retired_at is null;
create index devices_slurm on devices using gin (slurm_states);
create index devices_due on devices (due_at) where due_at is not null;

-- What a source said last of a device, unjudged.
create table facts (
	device_id bigint      not null references devices (id),
	source    text        not null,
	site_id   bigint      not null references sites (id),
	ref       text        not null, -- the source's own identity; '' for a device that it never listed
	ref_gone  boolean     not null default false, -- concluded gone: the device may join another record
	serial    text        not null default '', -- that the record gave: another one under the same ref is a swap
	hash      bytea       not null,
	body      jsonb       not null,
	seen_at   timestamptz not null, -- when the hash changed, or the record was read on its own
	unread_reason text    not null default '', -- why the newest reading gave nothing, DecodeFailed or MissingUnconfirmed; '' when it did
	unread_since  timestamptz,
	primary key (device_id, source)
);

create unique index facts_ref on facts (site_id, source, ref) where not ref_gone;
create index facts_gone_ref on facts (site_id, source, ref) where ref_gone; -- a ref that comes back finds its device

create table watermarks (
	site_id       bigint      not null references sites (id),
	source        text        not null,
	at            timestamptz, -- of the last complete sweep
	failing_since timestamptz,
	reason        text        not null default '',
	alert         text        not null default '', -- why the watermark is withheld
	primary key (site_id, source)
);

-- A device is never deleted, and rows of these three are written under the lock
-- of its row alone: a foreign key would cost a third of a first load.
create table device_writers (
	device_id bigint  not null,
	writer    text    not null,
	in_scope  boolean not null,
	unread    jsonb   not null default '{}', -- type → {reason, since}
	primary key (device_id, writer)
);

create table conditions (
	device_id          bigint      not null,
	type               text        not null,
	status             text        not null check (status in ('True', 'False', 'Unknown')),
	reason             text        not null,
	message            text        not null default '',
	writer             text        not null,
	last_transition_at timestamptz not null,
	observed_at        timestamptz, -- of posted and durable types: their order
	primary key (device_id, type)
);

create table lifecycle_events (
	id             bigint generated always as identity primary key,
	device_id      bigint      not null,
	kind           text        not null check (kind in ('inventory', 'operational', 'health')),
	value          text        not null,
	bundle_version text        not null default '',
	rung           text        not null default '',
	cause          jsonb       not null, -- {"type": "snapshot|projection|birth|operator|…", "writer": …, "actor": …}
	status_before  text        not null default '',
	judged         jsonb, -- masks {true, unknown, present, stale, past_hold, in_scope} as text, for operational rows
	created_at     timestamptz not null default clock_timestamp()
);

create index lifecycle_events_device on lifecycle_events (device_id, kind, id desc);

-- Work that loops claim. Leases save work; correctness comes from row locks and the order of facts.
create table sweeps (
	site_id      bigint      not null references sites (id),
	source       text        not null,
	owner        text        not null default '',
	epoch        bigint      not null default 0,
	leased_until timestamptz,
	due_at       timestamptz not null default now(),
	primary key (site_id, source)
);

create table projections (
	site_id      bigint primary key references sites (id),
	owner        text        not null default '',
	leased_until timestamptz,
	due_at       timestamptz not null default now()
);

create table source_findings (
	site_id   bigint      not null references sites (id),
	source    text        not null,
	kind      text        not null, -- missing, unjoined, ambiguous, unmapped, difference, foreign_mark, undecodable, swap
	ref       text        not null,
	device_id bigint      references devices (id),
	detail    jsonb       not null default '{}',
	since     timestamptz not null default now(),
	primary key (site_id, source, kind, ref)
);

-- A person's word that a missing set, identified by its hash, is really gone.
create table source_confirmations (
	id           bigint generated always as identity primary key,
	site_id      bigint      not null references sites (id),
	source       text        not null,
	hash         text        not null,
	refs         text[]      not null,
	confirmed_by text        not null,
	confirmed_at timestamptz not null default now(),
	used_at      timestamptz
);

create table tokens (
	id         bigint generated always as identity primary key,
	name       text        not null,
	hash       bytea       not null unique, -- SHA-256 of the token
	scopes     text[]      not null,
	sites      text[], -- null: all
	writer     text        not null default '', -- the one writer that condition:write is bound to
	created_at timestamptz not null default now(),
	created_by text        not null,
	expires_at timestamptz,
	revoked_at timestamptz
);

create table audit (
	id        bigint generated always as identity primary key,
	at        timestamptz not null default now(),
	principal text        not null,
	remote    text        not null default '',
	action    text        not null,
	target    text        not null,
	detail    jsonb       not null default '{}'
);

-- +goose StatementBegin
create function refuse_change() returns trigger language plpgsql as $$
begin
	raise exception '% is append-only', tg_table_name using errcode = 'restrict_violation';
end $$;
-- +goose StatementEnd

create trigger lifecycle_events_append_only before update or delete on lifecycle_events
	for each row execute function refuse_change();
create trigger lifecycle_events_no_truncate before truncate on lifecycle_events
	for each statement execute function refuse_change();
create trigger audit_append_only before update or delete on audit
	for each row execute function refuse_change();
create trigger audit_no_truncate before truncate on audit
	for each statement execute function refuse_change();

-- +goose Down
drop table audit, tokens, source_confirmations, source_findings, projections, sweeps, lifecycle_events, conditions,
	device_writers, watermarks, facts, devices, racks, site_revisions, sites, condition_types, active_policy, policy_bundles;
drop function refuse_change;
