class MemoryHub < Formula
  desc "Local-first memory for coding agents"
  homepage "@REPOSITORY@"
  url "https://files.pythonhosted.org/packages/source/d/@DISTRIBUTION@/@SDIST@"
  sha256 "@SDIST_SHA256@"
  license all_of: @LICENSES@

  depends_on "python@3.13"

  # Wheels of the dependencies, at the versions that pip chooses: a tap may, homebrew-core wants a resource for each
  # (brew update-python-resources).
  def install
    python = Formula["python@3.13"].opt_bin/"python3.13"
    system python, "-m", "venv", libexec
    system libexec/"bin/python", "-m", "pip", "install", "--quiet", buildpath
    bin.install_symlink libexec/"bin/memory-hub"
    generate_completions_from_executable(bin/"memory-hub", "completion")
  end

  service do
    run [opt_bin/"memory-hub", "serve", "--service"]
    keep_alive successful_exit: false
  end

  test do
    assert_equal version.to_s, shell_output("#{bin}/memory-hub --version").strip
    system bin/"memory-hub", "doctor", "--help"
  end
end
