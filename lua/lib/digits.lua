-- digits: a time as '%.0f' prints it (but for nine digits at least), without the C library's printing of doubles:
-- three of those cost a decision 1.5 us of 100. In two halves, as '%d' holds 32 bits on some machines.
local function digits(n)
  local low = n % 1e8
  return string.format('%d%08d', (n - low) / 1e8, low)
end
