# Loads a formula as Homebrew does, and prints what it declares as JSON.
require "json"

class Formula
  DECLARED = {}

  class << self
    %i[desc homepage url sha256 license depends_on].each do |name|
      define_method(name) { |value| DECLARED[name] = value }
    end

    %i[service test].each do |name|
      define_method(name) { |&block| DECLARED[name] = !block.nil? }
    end
  end
end

load ARGV[0]
DECLARED = Formula::DECLARED.merge(install: MemoryHub.method_defined?(:install))
puts JSON.generate(DECLARED)
