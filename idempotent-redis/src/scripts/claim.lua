#!lua
-- Claims. ARGV: lease, memory (µs), the keys' time to live (ms), most attempts (0: no limit), whether to park (1) and to
-- say how long a consumed key is kept (2),
-- then for each key its record up to the times: version, state, owner, flags, fingerprint, display.
-- Answers: now (µs), then (index, answer) for each key that was not simply free. An answer is 'G', taken over (7),
-- fencing (16), attempt (10); 'D' and the record of a key just buried; 'R' and the record left as it is; 'T', time to
-- live (ms, 16) and a consumed record; 'E', error.
local A, K, pcall, sub, type = ARGV, KEYS, redis.pcall, string.sub, type
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local lease, memory, ttl, timed = A[1] + 0, A[2] + 0, A[3], A[5] >= '2'
-- The number is the time: ten digits of seconds, six of microseconds.
local fresh = struct.pack('>I7I7I7I7I7', now, now, now + lease, memory, 0) .. t[1] .. sub('00000' .. t[2], -6) .. '0000000001'
local out, n = {now}, 1

-- What is done with a key that is not free: made where the first one is met.
local function made()
  local most, park = A[4] + 0, A[5] % 2 == 1

  -- The key's time to live, and no less than until the clock has passed the number.
  local function put(k, v, fence, ms)
    local r = pcall('SET', k, v, 'PX', math.max(ms, math.ceil((fence - now) / 1000) + 1))
    return r.err and 'E' .. r.err
  end

  local function grant(k, a, first, fence, attempt, over)
    local times = struct.pack('>I7I7I7I7I7', first, now, now + lease, memory, over)
    local counts = string.format('%016.0f%010.0f', fence, attempt)
    return put(k, a .. times .. counts, fence, ttl + 0) or 'G' .. sub(times, -7) .. counts
  end

  local function bury(k, cur, first, fence, text)
    local times = struct.pack('>I7I7I7I7I7', first, now, now, memory, 0)
    local v = '\129D' .. string.rep('\0', 16) .. sub(cur, 19, -62) .. text .. times .. sub(cur, -26)
    return put(k, v, fence, math.ceil(memory / 1000)) or 'D' .. v
  end

  return function(k, a, cur)
    local state = string.match(cur, '^\129([PVFD])')
    if not state then
      if timed and string.match(cur, '^[\129%d]') then return 'T' .. string.format('%16.0f', redis.call('PTTL', k)) .. cur end
      return
    end
    if #cur < 80 then return end
    local first, updated, till, kept, over = struct.unpack('>I7I7I7I7I7', cur, #cur - 60)
    local fence, attempt = tonumber(sub(cur, -26, -11)), tonumber(sub(cur, -10))
    if not fence or fence >= 9007199254740992 or not attempt then return end
    local higher = math.max(fence + 1, now)
    if till - updated > 2678400000000 and state == 'P' then return end
    if till + kept <= now then return grant(k, a, now, higher, 1, 0) end
    if state == 'F' or state == 'D' or till > now then return end
    if state == 'P' and sub(cur, 3, 18) == sub(a, 3, 18) then return end
    local spent = most > 0 and attempt >= most
    if state == 'V' then
      if spent then return bury(k, cur, first, fence, '') end
      return grant(k, a, first, higher, attempt + 1, over)
    end
    if park then return bury(k, cur, first, fence, 'parked: the last run let its lease run out, and nobody may take over') end
    if spent then return bury(k, cur, first, fence, 'crashed: the last run let its lease run out') end
    return grant(k, a, first, higher, attempt + 1, fence)
  end
end

local held
for i = 1, #K do
  local k, a = K[i], A[i + 5]
  local cur = pcall('SET', k, a .. fresh, 'NX', 'GET', 'PX', ttl)
  if cur then
    local r
    if type(cur) == 'table' then r = 'E' .. cur.err
    elseif timed or #cur >= 80 then
      held = held or made()
      r = held(k, a, cur)
    end
    out[n + 1] = i
    out[n + 2] = r or 'R' .. cur
    n = n + 2
  end
end
return out
