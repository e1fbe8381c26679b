-- +goose Up

-- Rules of operators, by which racks are operated. What the rule says is kept in
-- its normal form; the name and the operation stand beside it.
create table operation_rules (
	id             bigint generated always as identity primary key,
	name           text        not null,
	description    text        not null default '',
	operation_type text        not null,
	operation      text        not null,
	is_default     boolean     not null default false,
	rule           jsonb       not null, -- version and steps
	revision       integer     not null default 1,
	created_at     timestamptz not null default now(),
	updated_at     timestamptz not null default now(),
	updated_by     text        not null
);

create unique index operation_rules_default on operation_rules (operation_type, operation) where is_default;
create index operation_rules_operation on operation_rules (operation_type, operation, id);

create table rack_rules (
	rack_id        bigint      not null references racks (id),
	operation_type text        not null,
	operation      text        not null,
	rule_id        bigint      not null references operation_rules (id) on delete restrict,
	updated_at     timestamptz not null default now(),
	updated_by     text        not null,
	primary key (rack_id, operation_type, operation)
);

create index rack_rules_rule on rack_rules (rule_id);

-- An operation on one rack.
create table tasks (
	id                  bigint generated always as identity primary key,
	site_id             bigint      not null references sites (id),
	rack_id             bigint      not null references racks (id),
	operation_type      text        not null,
	operation           text        not null,
	rule                jsonb       not null, -- as it was resolved
	rule_source         text        not null check (rule_source in ('explicit', 'association', 'default', 'builtin')),
	rule_id             bigint, -- it may be gone by now; null: built in
	rule_revision       integer     not null default 0,
	identity            bytea       not null, -- equal ones ask for the same
	disruptive          boolean     not null,
	status              text        not null check (status in ('queued', 'expired', 'pending', 'running', 'succeeded', 'partially_failed', 'failed',
		'timed_out', 'cancellation_requested', 'cancelled', 'terminated')),
	conflict            text        not null check (conflict in ('refuse', 'queue')),
	queue_until         timestamptz, -- null: it never waited
	reason              text        not null default '',
	override_reason     text        not null default '', -- '': there is none
	firmware            jsonb       not null default '[]',
	excluded            bigint[]    not null default '{}',
	worst_ms            bigint      not null default 0, -- the longest that it may take
	bundle_version      text        not null, -- that admitted it
	requested_by        text        not null,
	failure_code        text        not null default '',
	failure_message     text        not null default '',
	created_at          timestamptz not null default now(),
	updated_at          timestamptz not null default now(),
	admitted_at         timestamptz,
	started_at          timestamptz,
	finished_at         timestamptz,
	over_budget_at      timestamptz,
	cancel_requested_at timestamptz,
	cancel_requested_by text        not null default '',
	cancel_reason       text        not null default ''
);

create index tasks_site on tasks (site_id, id);
create index tasks_rack on tasks (rack_id, id);
create index tasks_queued on tasks (rack_id, id) where status = 'queued';
create index tasks_open on tasks (rack_id, id) where status in ('queued', 'pending', 'running', 'cancellation_requested');

-- Written with its task's row locked.
create table task_components (
	task_id         bigint      not null references tasks (id),
	device_id       bigint      not null,
	component_type  text        not null,
	status          text        not null default '' check (status in ('', 'running', 'succeeded', 'failed', 'timed_out', 'cancelled', 'terminated')),
	phase           text        not null default '',
	failure_code    text        not null default '',
	failure_message text        not null default '',
	last_state      text        not null default '', -- that was seen of it
	started_at      timestamptz,
	finished_at     timestamptz,
	primary key (task_id, device_id)
);

create index task_components_device on task_components (device_id, task_id);
create index task_components_finished on task_components (finished_at) where finished_at is not null;

-- The report: what is to be done, with what or of the whole phase, and how it went.
create table task_entries (
	id             bigint generated always as identity primary key,
	task_id        bigint      not null references tasks (id),
	stage          integer     not null,
	component_type text        not null,
	phase          text        not null check (phase in ('pre', 'main', 'post')),
	action_index   integer     not null, -- within the phase
	action         text        not null,
	device_id      bigint, -- null: of the whole phase
	status         text        not null default '' check (status in ('', 'running', 'succeeded', 'failed', 'skipped', 'timed_out', 'cancelled', 'terminated')),
	attempts       integer     not null default 0,
	code           text        not null default '',
	message        text        not null default '',
	started_at     timestamptz,
	finished_at    timestamptz,
	unique nulls not distinct (task_id, stage, component_type, phase, action_index, device_id)
);

-- What a principal's key for a request of operations stands for.
create table task_keys (
	principal  text        not null,
	key        text        not null,
	body_hash  bytea       not null,
	task_ids   bigint[]    not null default '{}',
	created_at timestamptz not null default now(),
	primary key (principal, key)
);

create index task_keys_age on task_keys (created_at);

alter table executions
	add column task_id bigint references tasks (id),
	drop constraint executions_kind_check,
	add constraint executions_kind_check check (kind in ('device', 'batch', 'child', 'task'));
create index executions_task on executions (task_id) where task_id is not null and state <> 'closed';

-- A task that waits has not ended.
create or replace function job_ended(status text) returns boolean language sql immutable as
$$ select status not in ('', 'queued', 'pending', 'running', 'cancellation_requested') $$;

-- What was seen of a component last is told of one that has ended too.
-- +goose StatementBegin
create function keep_component() returns trigger language plpgsql as $$
declare
	kept task_components;
begin
	if tg_op <> 'UPDATE' then
		raise exception '% keeps its rows', tg_table_name using errcode = 'restrict_violation';
	end if;
	kept := new;
	kept.last_state := old.last_state;
	if job_ended(old.status) and kept is distinct from old then
		raise exception 'a row of % that ended as % does not change', tg_table_name, old.status using errcode = 'restrict_violation';
	end if;
	return new;
end $$;
-- +goose StatementEnd

create trigger tasks_keep_what_ended before update or delete on tasks for each row execute function keep_what_ended();
create trigger task_components_keep_what_ended before update or delete on task_components for each row execute function keep_component();
create trigger task_entries_keep_what_ended before update or delete on task_entries for each row execute function keep_what_ended();

-- +goose Down
delete from device_locks where holder like 'task/%';
delete from executions where task_id is not null;
alter table executions
	drop column task_id,
	drop constraint executions_kind_check,
	add constraint executions_kind_check check (kind in ('device', 'batch', 'child'));
drop table task_keys, task_entries, task_components, tasks, rack_rules, operation_rules;
drop function keep_component;
create or replace function job_ended(status text) returns boolean language sql immutable as
$$ select status not in ('', 'pending', 'running', 'cancellation_requested') $$;
