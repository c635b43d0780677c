-- acquire: may `cost` units pass now? Takes them from every bucket, or from none.
--
-- KEYS   one bucket per limit
-- ARGV   now ('' = ask Redis), mode ('take' | 'peek'), then for each limit:
--        interval (us; 0 = closed), burst, fresh (us until a new bucket is full), keep (us), cost
-- REPLY  {allowed 1|0, retry_after (us; -1 = not while closed), which limit refused or is nearest to
--        empty (1-based), then for each limit: remaining (units), reset_after (us)}
--
-- @include lib/clock
-- @include lib/gcra
-- @include lib/bucket
local now = clock(ARGV[1])
local wait, which, closed = 0, 1, false
local nearest = math.huge
local tats, reply = {}, {1, 0, 1}

for i, key in ipairs(KEYS) do
  local a = (i - 1) * 5 + 2
  local interval, burst, cost = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 5])
  local tat, rewound = bucket_load(key, now, now + tonumber(ARGV[a + 3]))
  tats[i] = tat
  if rewound then bucket_store(key, tat, now, tonumber(ARGV[a + 4])) end
  local held
  if interval == 0 then
    held = math.huge
  else
    held = gcra_slot(tat, now, interval, burst, cost) - now
  end
  if held > wait then wait, which = held, i end
end

local allowed = wait <= 0
local taken = allowed and ARGV[2] == 'take'
for i, key in ipairs(KEYS) do
  local a = (i - 1) * 5 + 2
  local interval, burst, cost = tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2]), tonumber(ARGV[a + 5])
  local tat, remaining = tats[i], 0
  if taken and cost > 0 then
    tat = gcra_take(tat, now, interval, cost)
    bucket_store(key, tat, now, tonumber(ARGV[a + 4]))
  end
  if interval == 0 then closed = true else remaining = gcra_remaining(tat, now, interval, burst) end
  if allowed and remaining < nearest then nearest, which = remaining, i end
  reply[#reply + 1] = remaining
  reply[#reply + 1] = math.max(0, tat - now)
end

reply[1] = allowed and 1 or 0
reply[2] = (closed and not allowed) and -1 or math.max(0, wait)
reply[3] = which
return reply
