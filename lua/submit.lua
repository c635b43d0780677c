-- submit: a producer is about to publish a task: let it, or park it.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), id, lane, rank (one digit; 0 goes first), expires (us; 0 = never),
--        eta (us; 0 = none), keys (comma-separated, one per limit), costs (the same), message,
--        ahead (us before its slot that a task may leave), lease (us), channel, scope
-- REPLY  {'go', ticket, slot (us), now (us), id} | {'parked', slot (us), now (us), id}
--        | error UNDECLARED
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/scope
-- @include lib/entry
-- @include lib/pace
-- @include lib/lane
-- @include lib/flight
-- @include lib/enter
local entry = entry_given()
return enter(clock(ARGV[1]), entry, tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12], ARGV[13])
