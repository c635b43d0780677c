-- submit: a producer is about to publish a task: let it, or park it.
--
-- KEYS   the eleven keys of the scope (README), then the start bucket of each limit (if one counts in windows)
-- ARGV   now ('' = ask Redis), id, lane, rank (one digit; 0 goes first), expires (us; 0 = never),
--        eta (us; 0 = none), keys (comma-separated, one per limit), costs (the same), message,
--        ahead (us before its slot that a task may leave), lease (us), channel, scope,
--        copy (the same when asked again about this message, and for no other), longest (us it may wait;
--        0 = any), most (tasks it may wait among; 0 = any)
-- REPLY  {'go', ticket, slot (us), now (us), id, calm (1|0)} | {'parked', slot (us), now (us), id}
--        | {'full', wait (us), over (us until it would not be)}
--        | error UNDECLARED
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/scope
-- @include lib/entry
-- @include lib/pace
-- @include lib/lane
-- @include lib/flight
-- @include lib/ahead
-- @include lib/enter
-- @include lib/log
-- @include lib/quota
counted.log, counted.quota = log, quota
local entry = entry_given(ARGV[14], ARGV[15], ARGV[16])
return enter(clock(ARGV[1]), entry, tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12], ARGV[13])
