-- In flight: let out to the broker and not yet started. FLIGHT orders them by the end of their lease;
-- TICKETS tells the one copy that may start; STALE remembers copies that were replaced by a later one.

local function flight_add(id, ticket, attempt, lease_end)
  redis.call('ZADD', FLIGHT, whole(lease_end), id)
  redis.call('HSET', TICKETS, id, ticket .. ' ' .. attempt)
end

local function flight_ticket(id)
  local held = redis.call('HGET', TICKETS, id)
  if not held then return nil, 0 end
  local ticket, attempt = string.match(held, '^(%d*) (%d+)$')
  return ticket, tonumber(attempt)
end

-- flight_recall: the copy in flight may not start any more (for a day, longer than brokers redeliver).
-- Its attempts stay counted, so that each next lease is twice as long.
local function flight_recall(id, now)
  local ticket, attempt = flight_ticket(id)
  redis.call('ZREM', FLIGHT, id)
  if not ticket or ticket == '' then return end
  redis.call('HSET', TICKETS, id, ' ' .. attempt)
  redis.call('ZADD', STALE, whole(now + DAY), ticket .. '|' .. id)
  redis.call('PEXPIRE', STALE, DAY / 1000)
end

-- flight_orphan: so is the message without our header that the entry was made of, should the broker deliver
-- it again because its worker died.
local function flight_orphan(entry, now)
  local try = string.match(entry.copy, '^(#%d+)@')
  if try then redis.call('ZADD', STALE, whole(now + DAY), try .. '|' .. entry.id) end
end

local function flight_stale(id, ticket)
  return redis.call('ZSCORE', STALE, ticket .. '|' .. id)
end

-- flight_end: the task has started, or will never.
local function flight_end(id)
  redis.call('ZREM', FLIGHT, id)
  redis.call('HDEL', TICKETS, id)
  return redis.call('HDEL', MESSAGES, id)
end
