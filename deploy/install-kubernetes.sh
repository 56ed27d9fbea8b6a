#!/usr/bin/env bash
# install-kubernetes.sh DIR: kube-apiserver, kube-controller-manager, kube-scheduler (1.20.2) and etcd in DIR/bin, built
# from the packages of Debian 12 alone, for `make test-kubernetes`. No root. 12 CPU minutes and 1.6 GB the first time;
# nothing where DIR/bin is complete.
set -eu
programs="kube-apiserver kube-controller-manager kube-scheduler"
mkdir -p "$1"
dir=$(cd "$1" && pwd)
complete() { for name in etcd $programs; do [ -x "$dir/bin/$name" ] || return 1; done; }
complete && exit 0
cd "$dir"

# Compiler, etcd, and one library in the version that this compiler needs.
apt-get download golang-1.19-go golang-1.19-src etcd-server golang-github-modern-go-reflect2-dev
for package in *.deb; do dpkg -x "$package" packages; done

# The source package, from where this machine gets its packages.
mkdir -p sources lists bin
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list > sources.list 2>/dev/null || :
for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] && sed 's/^Types:.*/Types: deb-src/' "$file" > "sources/$(basename "$file")"
done
apt="apt-get -o Dir::Etc::sourcelist=$dir/sources.list -o Dir::Etc::sourceparts=$dir/sources -o Dir::State::lists=$dir/lists"
$apt update -qq
$apt source -qq --download-only kubernetes
tree=$dir/go/src/k8s.io/kubernetes
mkdir -p "$tree"
tar xzf kubernetes_*.orig.tar.gz -C "$tree" --strip-components=1

export HOME=$dir GOROOT=$dir/packages/usr/lib/go-1.19 GOPATH=$dir/go GOCACHE=$dir/cache
export GO111MODULE=off GOPROXY=off CGO_ENABLED=0 PATH=$dir/packages/usr/lib/go-1.19/bin:$PATH
cd "$tree"
# reflect2 1.0.1 of the source package crashes the server when compiled by Go 1.18 or newer.
rm -rf vendor/github.com/modern-go/reflect2
cp -r "$dir/packages/usr/share/gocode/src/github.com/modern-go/reflect2" vendor/github.com/modern-go/
# The source package lacks the generated OpenAPI definitions.
go build -o "$dir/bin/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
left_out='vendor/k8s.io/(code-generator|sample-apiserver|gengo|kube-openapi)/|_test.go'
inputs=$(grep -rl --include='*.go' '+k8s:openapi-gen=' vendor/k8s.io/*/ pkg cmd plugin | grep -v -E "$left_out" |
    xargs -n1 dirname | LC_ALL=C sort -u | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
"$dir/bin/openapi-gen" -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r /dev/null
flags="-s -w"
for package in component-base/version client-go/pkg/version; do
    name=k8s.io/kubernetes/vendor/k8s.io/$package
    flags="$flags -X $name.gitVersion=v1.20.2 -X $name.gitMajor=1 -X $name.gitMinor=20 -X $name.gitTreeState=clean"
done
for name in $programs; do go build -trimpath -ldflags "$flags" -o "$dir/bin/$name" "./cmd/$name"; done
cp "$dir/packages/usr/bin/etcd" "$dir/bin/"
complete
# Only the programs are kept: a build that failed half way is tried again from the beginning.
cd "$dir" && chmod -R u+w go cache && rm -rf go cache packages sources lists sources.list ./*.deb kubernetes_* bin/openapi-gen
