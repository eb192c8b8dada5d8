-- What all scripts of a slot begin with. Times are µs by the server's clock; as scores they are exact until 2255.
if redis.replicate_commands then redis.replicate_commands() end
local due, rank, held, msg, state, ids, dead, letter, meta = unpack(KEYS)
local call = redis.call
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local function text(number) return string.format('%.0f', number) end

-- Wakes those that sleep until later than this.
local function wake(at)
  local waits = call('HGET', meta, 'waits')
  if waits and at < tonumber(waits) then
    call('HDEL', meta, 'waits')
    redis.pcall('PUBLISH', 'idempotent:due', string.match(due, '^(.*):due$'))
  end
end

-- Of a message: deliveries, attempt, retries of the queue's own that are used up, deaths, when it was first delivered,
-- why it came back last.
local function read(m)
  local taken, attempt, used, deaths, first, why =
    string.match(call('HGET', state, m) or '0 1 0 0 0 ', '^(%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return {tonumber(taken), tonumber(attempt), tonumber(used), tonumber(deaths), tonumber(first), why}
end
local function write(m, s)
  call('HSET', state, m, table.concat({s[1], s[2], s[3], s[4], text(s[5]), s[6]}, ' '))
end

-- When it is due or its priority, the name it goes by in `ids`, and where the payload begins.
local function parts(value)
  local given, size, at = string.match(value, '^(%d+) (%d+) ()')
  size = tonumber(size)
  return tonumber(given), string.sub(value, at, at + size - 1), at + size
end
local function free(m, name)
  if name ~= '' and call('HGET', ids, name) == m then call('HDEL', ids, name) end
end

-- Whether this delivery, by its number, is the one that holds the message.
local function mine(m, taken)
  if not call('ZSCORE', held, m) then return false end
  local s = read(m)
  if s[1] ~= tonumber(taken) then return false end
  return s
end

-- Those that came back rank behind all new ones, by the retries that are left to them.
local function left(s, most) return math.min(16, math.max(0, most - s[3])) end
local function place(m, s, most)
  local score = -left(s, most)
  if s[2] == 1 and s[3] == 0 then score = -parts(call('HGET', msg, m) or '17 0 ') end
  call('ZADD', rank, score, m)
end

local function bury(m, written, name)
  call('ZADD', dead, text(now), m)
  call('HSET', letter, m, written)
  call('ZREM', held, m)
  free(m, name)
end
-- Its retries are used up, the delivery that ended just now included.
local function exhausted(m, s)
  write(m, s)
  local _, name = parts(call('HGET', msg, m) or '0 0 ')
  local counts = table.concat({s[3], text(s[5]), text(now), s[4] + 1}, ' ')
  bury(m, counts .. ' 0:all retries are used up: ' .. s[6], name)
end
