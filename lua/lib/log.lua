-- A sliding log: never more than `count` units in any window of one period. One sorted set holds a member for
-- each unit that passed, by when: at most `count`, and few that are older than a period. `limit`: period (us),
-- count (0 = closed), cost.
local log = {}

local AHEAD_OF_CLOCK = 100000 -- us that a unit may pass in the future (a start that waits for its slot)

-- log_moved: the clock stepped back by `step`: all that passed goes with it.
local function log_moved(key, step)
  local all = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  for m = 1, #all, 2 do redis.call('ZADD', key, whole(all[m + 1] - step), all[m]) end
end

function log.load(key, now, limit)
  local last = tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
  if last and last > now + AHEAD_OF_CLOCK then
    log_moved(key, last - now)
    last = now
  end
  return {used = redis.call('ZCOUNT', key, '(' .. whole(now - limit.period), '+inf'), last = last}
end

-- slot: a period after the one that has to be gone.
function log.slot(state, now, limit, key)
  if limit.count == 0 then return math.huge end
  local over = state.used + limit.cost - limit.count
  if over <= 0 then return now end
  local from = '(' .. whole(now - limit.period)
  local gone = redis.call('ZRANGEBYSCORE', key, from, '+inf', 'WITHSCORES', 'LIMIT', over - 1, 1)
  return gone[2] and gone[2] + limit.period or now
end

-- take: members are numbered within their microsecond, however many come in one.
function log.take(key, state, now, limit)
  -- With a margin: `now` may be a slot ahead, and what is older than a period then still counts for who asks now.
  redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now - limit.period - AHEAD_OF_CLOCK))
  local score = whole(now)
  local there = redis.call('ZRANGE', key, score, score, 'BYSCORE', 'REV', 'LIMIT', 0, 1)[1]
  local number = there and tonumber(string.match(there, '%d+$')) or 0
  for n = number + 1, number + limit.cost do
    redis.call('ZADD', key, score, string.format('%s-%09d', score, n))
  end
  state.used, state.last = state.used + limit.cost, math.max(now, state.last or 0)
  redis.call('PEXPIREAT', key, math.ceil((state.last + limit.period) / 1000) + 1)
end

-- back: a start that was counted for `slot` comes another time; whether it must be taken anew.
function log.back(key, slot, limit)
  for _, member in ipairs(redis.call('ZRANGE', key, whole(slot), whole(slot), 'BYSCORE', 'LIMIT', 0, limit.cost)) do
    redis.call('ZREM', key, member)
  end
  return true
end

-- give: the oldest that still count are forgotten, whoever's they are: their room would have come first.
function log.give(key, _, now, limit)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now - limit.period))
  if limit.cost > 0 then redis.call('ZREMRANGEBYRANK', key, 0, limit.cost - 1) end
end

function log.left(state, now, limit)
  return math.max(0, limit.count - state.used), state.last and state.used > 0 and state.last + limit.period or now
end
