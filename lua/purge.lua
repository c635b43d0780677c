-- purge: throw away all that is parked. What is in flight stays: it is with the broker.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   lane ('' = all)
-- REPLY  number of tasks thrown away
--
-- @include lib/clock
-- @include lib/scope
-- @include lib/entry
-- @include lib/lane
-- @include lib/flight
local lane, purged = ARGV[1], 0
local places
if lane == '' then
  places = redis.call('ZRANGE', LINE, 0, -1)
else
  places = redis.call('ZRANGEBYLEX', LINE, '[' .. lane .. '|', '(' .. lane .. '}')
end
for _, place in ipairs(places) do
  redis.call('ZREM', LINE, place)
  purged = purged + flight_end(place_id(place))
end
if lane == '' then redis.call('DEL', READY, WAITING) else lane_left(lane) end
for _, id in ipairs(redis.call('ZRANGE', DELAYED, 0, -1)) do
  local value = redis.call('HGET', MESSAGES, id)
  local entry = value and entry_read(id, value)
  if lane == '' or (entry and entry.lane == lane) then
    redis.call('ZREM', DELAYED, id)
    purged = purged + flight_end(id)
  end
end
return purged
