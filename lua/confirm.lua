-- confirm: these tasks are with the broker, or still held by a worker: renew their leases. Each further
-- attempt at the same task has twice the lease, so that a slow queue does not fill with copies.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), lease (us), longest (us), then for each task: id, ticket
-- REPLY  number of leases renewed
--
-- @include lib/clock
-- @include lib/scope
-- @include lib/flight
local now, lease, longest = clock(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local renewed = 0
for i = 4, #ARGV, 2 do
  local ticket, attempt = flight_ticket(ARGV[i])
  if ticket == ARGV[i + 1] then
    redis.call('ZADD', FLIGHT, whole(now + math.min(longest, lease * 2 ^ math.max(0, attempt - 1))), ARGV[i])
    renewed = renewed + 1
  end
end
return renewed
