-- An entry is one parked or released task: MESSAGES[id] = eight fields and the message, whose bytes
-- nobody here looks into. It stays there, unchanged, until its body starts.

local FIELDS = '^([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n([^\n]*)\n()'

local function entry_read(id, value)
  local lane, rank, seq, expires, eta, keys, costs, copy, at = string.match(value, FIELDS)
  if not at then return nil end
  return {
    id = id, lane = lane, rank = rank, seq = seq, expires = tonumber(expires), eta = tonumber(eta),
    keys = split(keys), costs = split(costs), message = string.sub(value, at),
    keys_text = keys, costs_text = costs, copy = copy,
  }
end

-- entry_given: the entry in ARGV[2] to ARGV[9], as submit's header lists them. `copy` tells the message it
-- was made of, if a worker got that without our header, from another try of the same task; else ''. It may wait
-- so long (us) and behind so many; 0 or none: any.
local function entry_given(copy, longest, most)
  return {
    longest = tonumber(longest) or 0, most = tonumber(most) or 0,
    id = ARGV[2], lane = ARGV[3], rank = ARGV[4], expires = tonumber(ARGV[5]), eta = tonumber(ARGV[6]),
    keys = split(ARGV[7]), costs = split(ARGV[8]), message = ARGV[9], keys_text = ARGV[7], costs_text = ARGV[8],
    copy = copy,
  }
end

-- entry_write: what entry_read reads.
local function entry_write(entry)
  return table.concat({
    entry.lane, entry.rank, entry.seq, whole(entry.expires), whole(entry.eta), entry.keys_text, entry.costs_text,
    entry.copy, entry.message,
  }, '\n')
end

-- entry_place: its place in the line: by lane, then priority, then first come. A task put back has its old
-- sequence number and so returns to the head.
local function entry_place(entry)
  return entry.lane .. '|' .. entry.rank .. entry.seq .. '|' .. entry.id
end

-- place_id: the id in a place; a lane holds no '|', and 17 digits stand between.
local function place_id(place)
  return string.sub(place, string.find(place, '|', 1, true) + 19)
end
