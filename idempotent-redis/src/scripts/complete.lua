#!lua flags=allow-oom
-- Consuming becomes consumed. ARGV: retention (ms, 0: for ever), spread (ms, 0: none), then for each key the guard
-- (version, state, owner, and the fencing number (16) if it is known), and 'V' and the value, or ''.
-- Answers: now (µs), then (index, answer) for each key that was not held so: 'R' and the record left as it is, 'A' for
-- none, 'E' and an error.
local A, K, pcall, sub = ARGV, KEYS, redis.pcall, string.sub
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local retain, spread = A[1] + 0, A[2] + 0
if spread > 0 then retain = retain + now % spread end
local out, n = {now}, 1

-- The long form, where the short one, digits alone, cannot say all.
local function long(cur, fence, attempt, value, owner)
  local seen = string.byte(cur, 19) % 2
  local flags, v = seen, seen == 1 and sub(cur, 20, 36) or ''
  if owner then flags, v = flags + 2, v .. sub(cur, 3, 18) end
  if value ~= '' then flags, v = flags + 4, v .. sub(value, 2) end
  attempt = attempt + 0
  if attempt > 65535 then return '\129' .. string.char(104 + flags) .. struct.pack('>I7I4', fence, attempt) .. v end
  return '\129' .. string.char(96 + flags) .. struct.pack('>I7I2', fence, attempt) .. v
end

for i = 1, #K do
  local k, g, e = K[i], A[2 * i + 1], A[2 * i + 2]
  local cur = pcall('GET', k)
  local r
  if type(cur) == 'string' then
    r = 'R' .. cur
    local fence, known = sub(cur, -26, -11), #g > 18
    if sub(cur, 1, 18) == sub(g, 1, 18) and #cur >= 80 and (not known or fence == sub(g, 19)) then
      local updated, till, kept = struct.unpack('>I7I7I7', cur, #cur - 53)
      local number, attempt = tonumber(fence), sub(cur, -10)
      if number and number < 9007199254740992 and tonumber(attempt) and till - updated <= 2678400000000 and till + kept > now then
        local flags = string.byte(cur, 19)
        local v
        if known and e == '' and flags % 2 == 0 and sub(attempt, 1, 7) == '0000000' then v = fence .. sub(attempt, 8)
        else v = long(cur, number, attempt, e, not known) end
        if retain == 0 then r = pcall('SET', k, v)
        else r = pcall('SET', k, v, 'PX', math.max(retain, math.ceil((number - now) / 1000) + 1)) end
        if r.err then r = 'E' .. r.err
        else
          r = nil
          if flags >= 4 then pcall('PUBLISH', '@settled', k) end
        end
      end
    end
  elseif cur then r = 'E' .. cur.err
  else r = 'A' end
  if r then
    out[n + 1] = i
    out[n + 2] = r
    n = n + 2
  end
end
return out
