-- park: put a message into the backlog, whether or not its turn is now (a smoother lets all out by itself).
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), id, lane, rank (one digit; 0 goes first), expires (us; 0 = never),
--        eta (us; 0 = none), keys (comma-separated, one per limit), costs (the same), message,
--        ahead (us before its slot that a task may leave), lease (us), channel, scope,
--        redelivered (1|0)
-- REPLY  {'parked', slot (us), now (us), id} | {'stale'} parked before, and never acknowledged
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
if ARGV[14] == '1' and redis.call('HEXISTS', MESSAGES, ARGV[2]) == 1 then return {'stale'} end
local entry = entry_given('')
return enter(clock(ARGV[1]), entry, tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12], ARGV[13], true)
