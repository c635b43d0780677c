-- clock(arg): microseconds since the epoch, asked of Redis once per script (its TIME moves while a
-- script runs). A test passes its own time instead of ''.
local function clock(arg)
  if arg ~= '' then return tonumber(arg) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- whole(n): Redis stores what Lua prints, and tostring keeps 14 digits where microseconds need 16.
local function whole(n)
  return string.format('%.0f', n)
end
