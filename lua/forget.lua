-- forget: these tasks will not run (revoked, expired, cancelled, publish refused): remove every trace.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   the ids
-- REPLY  number of tasks that were there
--
-- @include lib/clock
-- @include lib/scope
-- @include lib/entry
-- @include lib/flight
local forgotten = 0
for _, id in ipairs(ARGV) do
  local value = redis.call('HGET', MESSAGES, id)
  local entry = value and entry_read(id, value)
  if entry then redis.call('ZREM', LINE, entry_place(entry)) end
  redis.call('ZREM', DELAYED, id)
  forgotten = forgotten + flight_end(id)
end
return forgotten
