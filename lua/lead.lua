-- lead: take or renew the lease of the one scheduler that does the work. Safety does not need it: any
-- number may release. It keeps the cost of idling from growing with the fleet.
--
-- KEYS   the lease
-- ARGV   who, lease (ms), mode ('take' | 'resign')
-- REPLY  {1, lease (ms)} if the caller leads, else {0, the leader's remaining lease (ms)}
local leader = redis.call('GET', KEYS[1])
if ARGV[3] == 'resign' then
  if leader == ARGV[1] then redis.call('DEL', KEYS[1]) end
  return {0, 0}
end
if leader and leader ~= ARGV[1] then return {0, redis.call('PTTL', KEYS[1])} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, tonumber(ARGV[2])}
