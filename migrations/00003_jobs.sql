-- +goose Up

-- Locks need an exclusion constraint over a number and a text.
-- +goose StatementBegin
do $$
begin
	if not exists (select from pg_available_extensions where name = 'btree_gist') then
		raise exception 'this PostgreSQL lacks the extension btree_gist, which locks on devices need'
			using hint = 'Install the contrib modules of PostgreSQL (postgresql-contrib on many systems) and run `muster migrate` again.';
	end if;
	create extension if not exists btree_gist;
exception when insufficient_privilege then
	raise exception 'the extension btree_gist, which locks on devices need, may not be created by %', current_user
		using hint = 'Let an administrator run "create extension btree_gist" in this database, or grant CREATE on the database, and run `muster migrate` again.';
end $$;
-- +goose StatementEnd

create table jobs (
	id                  bigint generated always as identity primary key,
	site_id             bigint      not null references sites (id),
	workflow            text        not null,
	contention          text        not null check (contention in ('exclusive', 'shared', 'none')),
	disruptive          boolean     not null,
	status              text        not null default 'pending' check (status in ('pending', 'running', 'succeeded', 'partially_failed', 'failed',
		'timed_out', 'cancellation_requested', 'cancelled', 'terminated', 'superseded')),
	parameters          jsonb       not null, -- with defaults, and what the server stamped of the site
	reason              text        not null default '',
	bundle_version      text        not null, -- that admitted it
	requested_by        text        not null,
	created_at          timestamptz not null default now(),
	updated_at          timestamptz not null default now(),
	started_at          timestamptz,
	finished_at         timestamptz,
	cancel_requested_at timestamptz,
	cancel_requested_by text        not null default '',
	cancel_reason       text        not null default ''
);

create index jobs_site on jobs (site_id, id);
create index jobs_workflow on jobs (workflow, id);
create index jobs_open on jobs (id) where status in ('pending', 'running', 'cancellation_requested');

-- Written with its job's row locked; a device is never deleted.
create table job_devices (
	job_id          bigint      not null references jobs (id),
	device_id       bigint      not null,
	status          text        not null default '' check (status in ('', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'terminated', 'superseded')),
	phase           text        not null default '',
	progress        smallint    not null default 0 check (progress between 0 and 100),
	failure_code    text        not null default '',
	failure_message text        not null default '',
	stamped         jsonb       not null default '{}', -- facts of the device at submission
	started_at      timestamptz,
	finished_at     timestamptz,
	primary key (job_id, device_id)
);

create index job_devices_device on job_devices (device_id, job_id);
create index job_devices_open on job_devices (job_id) where status in ('', 'running');
create index job_devices_finished on job_devices (finished_at) where finished_at is not null;

-- Who works on a device. Rows are written with the device's row locked, so that
-- nobody waits in a circle; the constraints hold whatever the code does.
create table device_locks (
	device_id  bigint      not null,
	holder     text        not null, -- job/<id> or task/<id>
	mode       text        not null check (mode in ('exclusive', 'shared')),
	work       text        not null, -- the workflow or operation
	disruptive boolean     not null, -- counts under the blast caps
	held       boolean     not null, -- named by a parameter: the holder does not run on it
	since      timestamptz not null default now(),
	primary key (device_id, holder),
	constraint device_locks_modes exclude using gist (device_id with =, mode with <>)
);

create unique index device_locks_exclusive on device_locks (device_id) where mode = 'exclusive';
create index device_locks_holder on device_locks (holder);

-- What Temporal is to run, runs and ran: outbox, queue of cancels, and what is
-- held against Temporal's own answer. The row's lock puts start and cancel in
-- one order.
create table executions (
	workflow_id    text        primary key, -- job/<job>/device/<device>, job/<job>/batch, or a child's
	kind           text        not null check (kind in ('device', 'batch', 'child')),
	holder         text        not null,
	job_id         bigint      references jobs (id),
	device_id      bigint, -- null: of the whole job
	parent         text        references executions (workflow_id),
	workflow       text        not null,
	site_id        bigint      not null references sites (id),
	want           text        not null default 'run' check (want in ('run', 'cancel')),
	state          text        not null default 'unsent' check (state in ('unsent', 'sent', 'closed')),
	tries          integer     not null default 0,
	trouble        text        not null default '', -- why the last try failed
	due_at         timestamptz not null default now(),
	dispatch_by    timestamptz, -- unsent then: failed
	sent_at        timestamptz,
	cancel_sent_at timestamptz,
	missing_since  timestamptz, -- Temporal says that it knows nothing of it
	closed_at      timestamptz,
	created_at     timestamptz not null default now(),
	check ((kind = 'child') = (parent is not null)),
	check ((state = 'closed') = (closed_at is not null))
);

create index executions_unsent on executions (due_at) where state = 'unsent';
create index executions_cancel on executions (due_at) where state = 'sent' and want = 'cancel';
create index executions_sent on executions (workflow_id) where state = 'sent';
create index executions_job on executions (job_id, device_id) where state <> 'closed';

-- A breaker that tripped, or did once. A column that is null or '' is any.
create table breakers (
	name         text        primary key, -- the policy's name, or <name>@<scope>
	policy       text        not null, -- the policy's name for it
	workflow     text        not null default '',
	site_id      bigint      references sites (id),
	rack_id      bigint      references racks (id),
	device_class text        not null default '',
	tripped_at   timestamptz, -- null: closed
	reason       text        not null default '',
	failed       integer     not null default 0,
	runs         integer     not null default 0,
	reset_at     timestamptz,
	reset_by     text        not null default '',
	reset_reason text        not null default ''
);

create table idempotency_keys (
	principal  text        not null,
	key        text        not null,
	body_hash  bytea       not null,
	job_id     bigint      references jobs (id),
	created_at timestamptz not null default now(),
	primary key (principal, key)
);

create index idempotency_keys_age on idempotency_keys (created_at);

-- +goose StatementBegin
create function job_ended(status text) returns boolean language sql immutable as
$$ select status not in ('', 'pending', 'running', 'cancellation_requested') $$;

create function keep_what_ended() returns trigger language plpgsql as $$
begin
	if tg_op <> 'UPDATE' then
		raise exception '% keeps its rows', tg_table_name using errcode = 'restrict_violation';
	end if;
	if job_ended(old.status) and new is distinct from old then
		raise exception 'a row of % that ended as % does not change', tg_table_name, old.status using errcode = 'restrict_violation';
	end if;
	return new;
end $$;

-- A job has ended when, and only when, all of its rows have.
create function agree_with_rows() returns trigger language plpgsql as $$
declare
	job  bigint := case tg_table_name when 'jobs' then (to_jsonb(new) ->> 'id')::bigint else (to_jsonb(new) ->> 'job_id')::bigint end;
	ends boolean := (select job_ended(status) from jobs where id = job);
begin
	if ends <> not exists (select from job_devices where job_id = job and status in ('', 'running')) then
		raise exception 'job % says otherwise than its devices whether it has ended', job using errcode = 'restrict_violation';
	end if;
	return null;
end $$;
-- +goose StatementEnd

create trigger jobs_keep_what_ended before update or delete on jobs for each row execute function keep_what_ended();
create trigger job_devices_keep_what_ended before update or delete on job_devices for each row execute function keep_what_ended();
create constraint trigger jobs_agree after insert or update of status on jobs
	deferrable initially deferred for each row execute function agree_with_rows();
create constraint trigger job_devices_agree after update of status on job_devices
	deferrable initially deferred for each row when (old.status is distinct from new.status) execute function agree_with_rows();

-- +goose Down
drop table idempotency_keys, breakers, executions, device_locks, job_devices, jobs;
drop function keep_what_ended, agree_with_rows, job_ended;
