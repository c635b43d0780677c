-- alive: how many processes ask the limits of this scope? Says that this one does, and forgets the silent.
--
-- KEYS   the processes
-- ARGV   now ('' = ask Redis), id of this one, span (us): how long it counts without saying so again
-- REPLY  how many, this one included
--
-- @include lib/clock
-- @include lib/digits
local now, span = clock(ARGV[1]), tonumber(ARGV[3])
redis.call('ZADD', KEYS[1], digits(now), ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', digits(now - span))
redis.call('PEXPIREAT', KEYS[1], digits(math.ceil((now + span) / 1000) + 1))
return redis.call('ZCARD', KEYS[1])
