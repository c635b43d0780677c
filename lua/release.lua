-- release: take out the tasks that are due, for the caller to publish. Each has a lease: if it is not
-- confirmed in time, recover.lua puts it back.
--
-- KEYS   the eleven keys of the scope (README)
-- ARGV   now ('' = ask Redis), ahead (us before its slot that a task may leave), batch (most tasks to
--        take), lease (us), rest (us: looked at again after this, if nothing is due before)
-- REPLY  {wait (us until the next look), still parked, entries without a message, lease (us until the first
--        in flight has lost it; -1 = none flies), then for each task: id, ticket, slot (us), message}
--        | error UNDECLARED
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/scope
-- @include lib/entry
-- @include lib/pace
-- @include lib/lane
-- @include lib/flight
local now, ahead, batch, lease = clock(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local horizon = now + ahead
local limits, window = limits_read(now)
if not limits then return UNDECLARED end

if now < (tonumber(redis.call('HGET', META, 'seen')) or 0) then lane_rewind(now, lease) end

-- Tasks whose ETA has come join the end of their lane.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', DELAYED, '-inf', whole(horizon), 'LIMIT', 0, batch)) do
  redis.call('ZREM', DELAYED, id)
  local value = redis.call('HGET', MESSAGES, id)
  local entry = value and entry_read(id, value)
  if entry then
    entry.seq = next_seq(now)
    redis.call('HSET', MESSAGES, id, entry_write(entry))
    lane_return(entry)
  end
end

for _, lane in ipairs(redis.call('ZRANGEBYSCORE', WAITING, '-inf', whole(horizon), 'LIMIT', 0, 4 * batch)) do
  lane_join(lane)
end

local reply, missing, looks, flying = {0, 0, 0, -1}, 0, 0, redis.call('ZCARD', FLIGHT)
local next_look = NEVER
while true do
  local lane, vtime = unpack(redis.call('ZRANGE', READY, 0, 0, 'WITHSCORES'))
  if not lane then break end
  if (#reply - 4) / 4 >= batch or looks >= 4 * batch then next_look = now break end
  if flying >= window then break end -- a start wakes us
  looks = looks + 1

  local id, place = lane_head(lane)
  local value = id and redis.call('HGET', MESSAGES, id)
  if not id then
    redis.call('ZREM', READY, lane)
  elseif not value then
    redis.call('ZREM', LINE, place)
    missing = missing + 1
  else
    local entry = entry_read(id, value)
    local expired = entry.expires > 0 and entry.expires < now -- goes out uncharged; the worker drops it
    local slot, wide, found = now, false
    if not expired then
      slot, wide, found = pace(limits, entry, now)
      slot = math.max(slot, entry.eta) -- it may leave ahead of its ETA, but not start
    end
    if slot > horizon and wide then
      next_look = slot - ahead
      break
    elseif slot > horizon then
      lane_wait(entry, slot, ahead)
    else
      if not expired then pace_take(limits, found, slot, now) end
      redis.call('ZREM', LINE, place)
      local _, attempt = flight_ticket(id)
      local ticket = next_seq(now)
      flight_add(id, ticket, attempt + 1, now + lease)
      flying = flying + 1
      redis.call('ZADD', READY, whole(tonumber(vtime) + 1000), lane)
      redis.call('HSET', META, 'vtime', vtime)
      for _, item in ipairs({id, ticket, whole(slot), entry.message}) do reply[#reply + 1] = item end
    end
  end
end
if redis.call('EXISTS', READY, WAITING) == 0 and redis.call('EXISTS', LINE) == 1 then
  lane_rebuild()
  next_look = now
end
local released = (#reply - 4) / 4
if released > 0 then redis.call('HINCRBY', META, 'released', released) end

local fresh = 0
for _, limit in ipairs(limits) do fresh = math.max(fresh, limit.fresh) end
redis.call('ZREMRANGEBYSCORE', RELEASES, '-inf', whole(now - (fresh > 0 and DAY or 0)))
redis.call('ZREMRANGEBYSCORE', STALE, '-inf', whole(now))
for _, first in ipairs({
  redis.call('ZRANGE', WAITING, 0, 0, 'WITHSCORES')[2] or NEVER,
  redis.call('ZRANGE', DELAYED, 0, 0, 'WITHSCORES')[2] or NEVER,
}) do next_look = math.min(next_look, tonumber(first) - ahead) end
local lease_end = redis.call('ZRANGE', FLIGHT, 0, 0, 'WITHSCORES')[2]
if lease_end then
  next_look = math.min(next_look, tonumber(lease_end))
  reply[4] = math.max(0, math.ceil(lease_end - now))
end
next_look = math.max(now, math.min(next_look, now + tonumber(ARGV[5])))
redis.call('HSET', META, 'wake', whole(next_look), 'seen', whole(now))
redis.call('PEXPIRE', META, MONTH_MS)
redis.call('PEXPIRE', LIMITS, MONTH_MS)

reply[1] = math.ceil(next_look - now)
reply[2] = redis.call('ZCARD', LINE) + redis.call('ZCARD', DELAYED)
reply[3] = missing
return reply
