-- submit: a producer is about to publish a task: let it, or park it.
--
-- KEYS   the eleven keys of the scope (README), then, where the broker is this Redis, the queue's list
-- ARGV   now ('' = ask Redis), id, lane, rank (one digit; 0 goes first), expires (us; 0 = never),
--        eta (us; 0 = none), keys (comma-separated, one per limit), costs (the same), message,
--        ahead (us before its slot that a task may leave), lease (us), channel, scope,
--        queued (with a queue: the message as the broker keeps it), placeholder (in it, for our header)
-- REPLY  {'go', ticket, slot (us), now (us), id} | {'parked', slot (us), now (us), id}
--        | {'sent', ticket, slot (us), now (us), id}  as go, and it is in the queue
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
local reply = enter(clock(ARGV[1]), entry_given(), tonumber(ARGV[10]), tonumber(ARGV[11]), ARGV[12], ARGV[13])
local queued, placeholder = ARGV[14], ARGV[15]
if reply[1] ~= 'go' or not queued then return reply end

local from, to = string.find(queued, placeholder, 1, true)
local header = reply[2] .. ' ' .. reply[3] .. ' ' .. reply[5]
redis.call('LPUSH', KEYS[12], string.sub(queued, 1, from - 1) .. header .. string.sub(queued, to + 1))
return {'sent', reply[2], reply[3], reply[4], reply[5]}
