#!lua flags=no-writes
-- Reads the records that a search may select, without their results. ARGV[1] is a sum: 1 vacant, 2 consuming, 4 consumed, 8 failed, 16
-- dead, 32 unreadable.
-- Reply: now (µs), then for each key false or its answer, and its expiry time (ms; -1: never). The answer is `R` and the value, or `C`, the
-- length of the value (-1: unknown), a space, and the first bytes of a consumed record: the rest is a part of its result.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local out = {now}
local mask = tonumber(ARGV[1])
local function wanted(bit) return mask % (2 * bit) >= bit end
local states = {[86] = wanted(1), [80] = wanted(2), [70] = wanted(8), [68] = wanted(16)}
local function ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function expiry(k)
  local ends = redis.pcall('PEXPIRETIME', k)
  -- Redis 6.2 returns only the remaining time. The sum is exact unless a ms ends in between.
  if type(ends) == 'table' then
    local before, after = nil, ms()
    repeat
      before = after
      ends = redis.call('PTTL', k)
      after = ms()
    until before == after
    if ends >= 0 then ends = ends + after end
  end
  return ends
end
for i = 1, #KEYS do
  local k = KEYS[i]
  local head = redis.pcall('GETRANGE', k, 0, 47)
  local seen = false
  if type(head) == 'table' then
    seen = 'E' .. head.err
  else
    local version, state = string.byte(head, 1, 2)
    if #head == 19 and string.find(head, '^%d+$') then
      seen = wanted(4) and 'R' .. head
    elseif version == 129 and state and state >= 96 and state <= 111 then
      if wanted(4) and #head < 48 then
        seen = 'R' .. head
      elseif wanted(4) then
        local length = redis.pcall('STRLEN', k)
        seen = 'C' .. (type(length) == 'table' and -1 or length) .. ' ' .. head
      end
    elseif version == 129 and states[state] ~= nil then
      local value = states[state] and redis.call('GET', k)
      seen = value and 'R' .. value
    elseif wanted(32) and (version or redis.call('GET', k)) then
      seen = 'R' .. head
    end
  end
  out[2 * i] = seen
  out[2 * i + 1] = seen and expiry(k) or 0
end
return out
