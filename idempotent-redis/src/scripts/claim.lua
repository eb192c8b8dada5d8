#!lua
-- Claims. ARGV: lease, memory (µs), time to live of the keys (ms), maximum attempts (0: no limit), flags: park (1),
-- return the remaining retention of consumed keys (2). Then for each key the part of its record between the number and
-- the times: owner, flags, fingerprint, display. Reply: now (µs), or a list of now and (index, answer) for each key
-- that was not free. Answers: 'G', taken over (7), fencing (16), attempt (10); 'D' and the record of a key that just
-- died; 'R' and the unchanged record; 'T', time to live (ms, 16) and a consumed record; 'E' and an error.
local A, K, pcall, sub = ARGV, KEYS, redis.pcall, string.sub
local t = redis.call('TIME')
local lease, memory, ttl, timed = A[1] + 0, A[2] + 0, A[3], A[5] >= '2'
-- The fencing number is the time: ten digits of seconds, six of microseconds.
local stamp = t[1] .. sub('00000' .. t[2], -6)
local now = stamp + 0
local head = '\129P' .. stamp .. '001'
local tail = struct.pack('>I7I7I7I7I7', now, now, now + lease, memory, 0) .. '0000000'
local out, n

-- Handles keys that are not free. Created for the first such key.
local function made()
  local most, park = A[4] + 0, A[5] % 2 == 1

  -- Sets the time to live, at least until the clock has passed the number.
  local function put(k, v, fence, ms)
    local r = pcall('SET', k, v, 'PX', math.max(ms, math.ceil((fence - now) / 1000) + 1))
    return r.err and 'E' .. r.err
  end

  local function grant(k, a, first, fence, attempt, over)
    local times = struct.pack('>I7I7I7I7I7', first, now, now + lease, memory, over)
    local number, count = string.format('%016.0f', fence), string.format('%010.0f', attempt)
    return put(k, '\129P' .. number .. sub(count, 8) .. a .. times .. sub(count, 1, 7), fence, ttl + 0)
      or 'G' .. sub(times, -7) .. number .. count
  end

  local function bury(k, cur, first, fence, text)
    local times = struct.pack('>I7I7I7I7I7', first, now, now, memory, 0)
    local v = '\129D' .. sub(cur, 3, 21) .. string.rep('\0', 16) .. sub(cur, 38, -43) .. text .. times .. sub(cur, -7)
    return put(k, v, fence, math.ceil(memory / 1000)) or 'D' .. v
  end

  return function(k, a, cur)
    local state = string.match(cur, '^\129([PVFD])')
    if not state then
      if timed and string.match(cur, '^[\129%d]') then return 'T' .. string.format('%16.0f', redis.call('PTTL', k)) .. cur end
      return
    end
    if #cur < 80 then return end
    local first, updated, till, kept, over = struct.unpack('>I7I7I7I7I7', cur, #cur - 41)
    local fence, attempt = tonumber(sub(cur, 3, 18)), tonumber(sub(cur, -7) .. sub(cur, 19, 21))
    if not fence or fence >= 9007199254740992 or not attempt then return end
    local higher = math.max(fence + 1, now)
    if till - updated > 2678400000000 and state == 'P' then return end
    if till + kept <= now then return grant(k, a, now, higher, 1, 0) end
    if state == 'F' or state == 'D' or till > now then return end
    if state == 'P' and sub(cur, 22, 37) == sub(a, 1, 16) then return end
    local spent = most > 0 and attempt >= most
    if state == 'V' then
      if spent then return bury(k, cur, first, fence, '') end
      return grant(k, a, first, higher, attempt + 1, over)
    end
    if park then return bury(k, cur, first, fence, 'parked: the lease of the last run expired, and the policy forbids a takeover') end
    if spent then return bury(k, cur, first, fence, 'crashed: the last run let its lease run out') end
    return grant(k, a, first, higher, attempt + 1, fence)
  end
end

local held
for i = 1, #K do
  local k, a = K[i], A[i + 5]
  local cur = pcall('SET', k, head .. a .. tail, 'NX', 'GET', 'PX', ttl)
  if cur then
    local r
    if cur.err then r = 'E' .. cur.err
    elseif timed or #cur >= 80 then
      held = held or made()
      r = held(k, a, cur)
    end
    if not out then out, n = {now}, 1 end
    out[n + 1] = i
    out[n + 2] = r or 'R' .. cur
    n = n + 2
  end
end
return out or now
