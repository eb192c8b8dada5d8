#!lua flags=allow-oom
-- Records steps. Each step has two keys: the record and its steps. ARGV: minimum retention of steps (ms), then for each
-- step the guard (see renewals) and its entry. Reply as for completions; 'X' if the key holds something else.
local A, K, pcall, sub = ARGV, KEYS, redis.pcall, string.sub
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local keep = A[1] + 0
local out, n

-- Returns the start of a held record, as stored, and its expiry time (µs).
local function begun(cur, g)
  if sub(cur, 1, 2) ~= '\129P' or #cur < 80 or sub(cur, 22, 37) ~= sub(g, -17, -2) then return end
  if #g == 38 and sub(cur, 3, 18) ~= sub(g, 3, 18) then return end
  local updated, till, kept = struct.unpack('>I7I7I7', cur, #cur - 34)
  if till - updated > 2678400000000 or till + kept <= now then return end
  return sub(cur, -42, -36), till + kept
end

for i = 1, #K / 2 do
  local k, g, entry = K[2 * i], A[2 * i], A[2 * i + 1]
  local cur = pcall('GET', K[2 * i - 1])
  local r
  if not cur then r = 'A'
  elseif cur.err then r = 'E' .. cur.err
  else
    local first, ends = begun(cur, g)
    if not first then r = 'R' .. cur
    else
      local steps = pcall('GET', k)
      if steps and steps.err then r = 'E' .. steps.err
      elseif steps and sub(steps, 1, 2) ~= '\129J' then r = 'X'
      else
        -- Steps of an earlier record are removed.
        local head = '\129J' .. first
        if not steps or sub(steps, 1, 9) ~= head then steps = head end
        local ms = string.format('%.0f', math.max(math.ceil((ends - now) / 1000), keep))
        r = pcall('SET', k, steps .. entry, 'PX', ms)
        r = r.err and 'E' .. r.err or nil
      end
    end
  end
  if r then
    if not out then out, n = {now}, 1 end
    out[n + 1] = i
    out[n + 2] = r
    n = n + 2
  end
end
return out or now
