#!lua flags=allow-oom
-- Consuming becomes consumed. ARGV: retention (ms, 0: for ever), then for each key the guard (version, state, owner, and
-- the fencing number (16) if it is known), and 'V' and the value, or ''.
-- Answers: now (µs), then (index, answer) for each key that was not held so: 'R' and the record left as it is, 'A' for
-- none, 'E' and an error.
local A, K, pcall, sub, type = ARGV, KEYS, redis.pcall, string.sub, type
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local retain = A[1]
local out, n = {now}, 1

for i = 1, #K do
  local k, g, e = K[i], A[2 * i], A[2 * i + 1]
  local cur = pcall('GET', k)
  local r
  if type(cur) == 'string' then
    local left = true
    local fence, known = sub(cur, -26, -11), #g > 18
    if sub(cur, 1, 18) == sub(g, 1, 18) and #cur >= 80 and (not known or fence == sub(g, 19)) then
      local updated, till, kept = struct.unpack('>I7I7I7', cur, #cur - 53)
      local number, attempt = tonumber(fence), sub(cur, -10)
      if number and number < 9007199254740992 and tonumber(attempt) and till - updated <= 2678400000000 and till + kept > now then
        local flags, v = string.byte(cur, 19), nil
        if known and e == '' and flags % 2 == 0 and sub(attempt, 1, 7) == '0000000' then v = fence .. sub(attempt, 8)
        else
          -- The long form, where the short one, digits alone, cannot say all.
          local form, parts = flags % 2, flags % 2 == 1 and sub(cur, 20, 36) or ''
          if not known then form, parts = form + 2, parts .. sub(cur, 3, 18) end
          if e ~= '' then form, parts = form + 4, parts .. sub(e, 2) end
          attempt = attempt + 0
          if attempt > 65535 then v = '\129' .. string.char(104 + form) .. struct.pack('>I7I4', number, attempt) .. parts
          else v = '\129' .. string.char(96 + form) .. struct.pack('>I7I2', number, attempt) .. parts end
        end
        -- A number is far slower than its text: servers print it with seventeen digits.
        if retain == '0' then r = pcall('SET', k, v)
        elseif number <= now then r = pcall('SET', k, v, 'PX', retain)
        else r = pcall('SET', k, v, 'PX', math.max(retain + 0, math.ceil((number - now) / 1000) + 1)) end
        left = false
        if r.err then r = 'E' .. r.err
        else
          r = nil
          if flags >= 4 then pcall('PUBLISH', '@settled', k) end
        end
      end
    end
    if left then r = 'R' .. cur end
  elseif cur then r = 'E' .. cur.err
  else r = 'A' end
  if r then
    out[n + 1] = i
    out[n + 2] = r
    n = n + 2
  end
end
return out
